"""The chain of manifests: which exist, whether they follow each other, and whether their files are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.content import OtherFormat
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, StreamStopped
from penstock.ports import Probe
from penstock.sinks.files.folder import Damaged, Folder
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.manifest import Manifest, Newest, SliceFile

#: what an error says is safe
UNCHANGED = "Nothing was changed: the mark stays, and no file was removed."

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Chain:
    """One stream's manifests in one folder."""

    folder: Folder
    layout: Layout
    probe: Probe

    def path(self, name: str) -> str:
        return self.folder.path(name)

    def manifest_name(self, number: int) -> str:
        return self.layout.manifest(number)

    def numbers(self, above: int = 0) -> list[int]:
        """The numbers of all manifests above one, in order."""
        return self.folder.manifest_numbers(self.layout, above)

    def read(self, number: int) -> Manifest:
        """One manifest; StreamStopped if it is damaged or is another stream's.

        StreamRefused if another version of penstock wrote it: `recover` must not withdraw it.
        """
        return self._parse(number, self._text(number))

    def _text(self, number: int) -> str | None:
        name = self.manifest_name(number)
        try:
            return self.folder.read(name)
        except ValueError as error:  # bytes that are no text
            raise self.broken(f"manifest {self.path(name)} cannot be read: {error}") from error

    def _parse(self, number: int, text: str | None) -> Manifest:
        path = self.path(self.manifest_name(number))
        try:
            if text is None:
                raise ValueError("it does not exist")
            manifest = Manifest.parse(text)
            slice_ = manifest.slice
            if (slice_.pipeline, slice_.stream, slice_.number) != (self.layout.pipeline, self.layout.stream, number):
                raise ValueError(f"it belongs to {slice_.pipeline}/{slice_.stream} slice {slice_.number}")
        except OtherFormat as error:
            raise StreamRefused(
                f"the output folder was written by another version of penstock: manifest {path}: {error}",
                next_step=f"use that version; or move {self.path(self.layout.data)} and {self.path(self.layout.meta)} "
                "away, or name another `directory` of the sink, and the stream begins again",
                safe=UNCHANGED,
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self.broken(f"manifest {path} cannot be read: {error}") from error
        return manifest

    def last(self, *, whole: bool = False) -> Manifest | None:
        """The newest manifest of an unbroken chain, with its files and its predecessor's visible; None: no manifest.

        Costs the same however many manifests there are: `newest.json` names one that existed, and only those above it
        are looked for. Without that file, or for the `whole` chain, all are listed.
        """
        known = None if whole else self._known()
        numbers = self.numbers(known.number if known else 0)
        self.check_unbroken(numbers, known.number if known else 0)
        last = numbers[-1] if numbers else known.number if known else 0
        if not last:
            return None
        first = max(1, last - self.folder.checked_manifests + 1)
        tail = self.each(lambda number: self._read(number, known, last), range(first, last + 1))
        self.check_links(tail)
        if known and known.number < first:
            self._read(known.number, known, last)
        newest = tail[-1]
        # A refresh replaces what came before, so only its own files must exist.
        for manifest in tail[-1:] if newest.slice.kind is Kind.REFRESH else tail[-2:]:
            self.make_visible(manifest)
        return newest

    # ------------------------------------------------------------ newest.json

    def _known(self) -> Newest | None:
        try:
            text = self.folder.read(self.layout.newest)
        except ValueError:  # bytes that are no text
            return None
        return Newest.parse(text) if text is not None else None

    def _read(self, number: int, known: Newest | None, last: int) -> Manifest:
        """One manifest of a chain. The one that `newest.json` names existed: it must be here, and the same."""
        is_known = known is not None and known.number == number
        names = f"{self.path(self.layout.newest)} names slice {number}"
        text = self._text(number)
        if text is None and is_known:
            raise self.broken(f"{names}, whose manifest is missing: the folder was restored to an older state, in part")
        if text is None:
            raise self.broken(f"manifest {number} is missing below manifest {last}")
        manifest = self._parse(number, text)
        if known is not None and is_known and manifest.slice.id != known.id:
            raise self.broken(f"{names}, but its manifest is of another: the folder was mixed with another one")
        return manifest

    def remember(self, manifest: Manifest) -> None:
        """Write down the newest manifest. It exists: so what is written may be older than the truth, never newer."""
        self.folder.overwrite(self.layout.newest, Newest(manifest.slice.number, manifest.slice.id).text())

    def forget(self) -> None:
        """Remove `newest.json` before a manifest is withdrawn; the next look lists all manifests."""
        self.folder.remove(self.layout.newest)

    # ------------------------------------------------------------ checks

    def check_unbroken(self, numbers: list[int], above: int = 0) -> None:
        if missing := sorted(set(range(above + 1, numbers[-1] + 1)) - set(numbers)) if numbers else []:
            raise self.broken(f"manifest {missing[0]} is missing below manifest {numbers[-1]}")

    def check_links(self, manifests: list[Manifest]) -> None:
        first = manifests[0].slice
        if first.number == 1 and first.previous:
            raise self.broken("manifest 1 does not begin the chain")
        for before, after in zip(manifests, manifests[1:], strict=False):
            if after.slice.previous != before.slice.id:
                raise self.broken(f"manifest {after.slice.number} does not follow manifest {before.slice.number}")

    # ------------------------------------------------------------ visible files

    def make_visible(self, manifest: Manifest) -> None:
        """Publish the files that are still staged. Any process can finish this; StreamStopped if a file is missing."""
        number = manifest.slice.number
        is_refresh = manifest.slice.kind is Kind.REFRESH
        sizes = self.each(lambda file: self.folder.size(file.name), manifest.files)
        staged = [file for file, size in zip(manifest.files, sizes, strict=True) if size != file.bytes]
        if not staged and not is_refresh:
            return
        version = self.folder.version(self.manifest_name(number))
        stored = self.read(number)
        if (stored.slice.id, stored.attempt) != (manifest.slice.id, manifest.attempt):
            raise self.broken(f"manifest {number} was replaced by another")

        def publish(file: SliceFile) -> None:
            self._check_unchanged(number, version)
            self._publish(file, number)

        self.each(publish, staged)
        self.folder.published([file.name for file in staged])
        if is_refresh:
            self._check_unchanged(number, version)
            try:
                self.folder.point(self.layout, manifest, self.probe)
            except Damaged as damaged:
                raise self.broken(str(damaged)) from damaged

    def _check_unchanged(self, number: int, version: object) -> None:
        """Nothing becomes visible without its manifest, even if the folder is restored to an older state meanwhile."""
        if version is None or self.folder.version(self.manifest_name(number)) != version:
            raise self.broken(f"manifest {number} has gone while its files were being made visible")

    def _publish(self, file: SliceFile, number: int) -> None:
        try:
            size = self.folder.publish(file)
        except Damaged as damaged:
            raise self.broken(f"{self.path(file.name)} of slice {number}: {damaged}") from damaged
        if size != file.bytes:
            what = f"{self.path(file.name)} of slice {number} is missing or has changed size"
            raise self.broken(f"{what}, although its manifest names it")
        self.probe.at("files.file_visible", number=number)

    def each(self, ask: Callable[[T], R], of: Iterable[T]) -> list[R]:
        """Ask something of each; at the same time where the folder is far away and there is more than one."""
        given = list(of)
        if self.folder.concurrency == 1 or len(given) < 2:
            return [ask(each) for each in given]
        with ThreadPoolExecutor(min(len(given), self.folder.concurrency)) as pool:
            return list(pool.map(ask, given))

    def broken(self, what: str) -> StreamStopped:
        return StreamStopped(
            f"the output folder is incomplete and cannot be repaired: {what}",
            next_step="restore the folder, or run `penstock state recover FILE --stream "
            f"{self.layout.stream}`: it withdraws the incomplete slices, and the next run delivers them again",
            safe=UNCHANGED,
        )
