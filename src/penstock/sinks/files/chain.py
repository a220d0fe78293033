"""The chain as it lies on disk: which manifests there are, whether they link, whether their files are whole."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from penstock.core.content import OtherFormat
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, StreamStopped
from penstock.ports import Probe
from penstock.sinks.files.layout import Layout, manifest_number
from penstock.sinks.files.manifest import Manifest, make_folders, sync_folder

#: how many of the newest manifests are read and checked link by link whenever someone asks; `recover` reads all.
#: A link was checked when it was made: deeper down it can only break by hands that mix two folders.
TAIL = 16


@dataclass(frozen=True, slots=True)
class Chain:
    """One stream's manifests in one folder."""

    root: str
    layout: Layout
    probe: Probe

    def path(self, relative: str) -> str:
        return os.path.join(self.root, relative)

    def manifest_path(self, number: int) -> str:
        return self.path(self.layout.manifest(number))

    def numbers(self) -> list[int]:
        """The numbers of all manifests, in order."""
        try:
            names = os.listdir(self.path(self.layout.manifests))
        except FileNotFoundError:
            return []
        return sorted(number for number in map(manifest_number, names) if number is not None)

    def read(self, number: int) -> Manifest:
        """One manifest; StreamStopped if it is damaged or is another stream's.

        StreamRefused if another version of penstock wrote it: `recover` must not withdraw it.
        """
        path = self.manifest_path(number)
        try:
            with open(path, encoding="ascii") as file:
                manifest = Manifest.parse(file.read())
            found = (manifest.slice.pipeline, manifest.slice.stream, manifest.slice.number)
            if found != (self.layout.pipeline, self.layout.stream, number):
                raise ValueError(f"it belongs to {found[0]}/{found[1]} slice {found[2]}")
        except OtherFormat as error:
            raise self._other_format(path, error) from error
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise self.broken(f"manifest {path} cannot be read: {error}") from error
        return manifest

    def last(self) -> Manifest | None:
        """The newest manifest of an unbroken chain, its files and its predecessor's visible; None: there is none."""
        numbers = self.numbers()
        if not numbers:
            return None
        self.check_unbroken(numbers)
        tail = [self.read(number) for number in numbers[-TAIL:]]
        self.check_links(tail)
        newest = tail[-1]
        # A refresh takes the place of what came before, so only its own files must be there.
        whole = tail[-1:] if newest.slice.kind is Kind.REFRESH else tail[-2:]
        for manifest in whole:
            self.make_visible(manifest)
        return newest

    def check_unbroken(self, numbers: list[int]) -> None:
        missing = sorted(set(range(1, numbers[-1] + 1)) - set(numbers))
        if missing:
            raise self.broken(f"manifest {missing[0]} is missing below manifest {numbers[-1]}")

    def check_links(self, manifests: list[Manifest]) -> None:
        first = manifests[0].slice
        if first.number == 1 and first.previous:
            raise self.broken("manifest 1 does not begin the chain")
        for before, after in zip(manifests, manifests[1:], strict=False):
            if after.slice.previous != before.slice.id:
                raise self.broken(f"manifest {after.slice.number} does not follow manifest {before.slice.number}")

    def make_visible(self, manifest: Manifest) -> None:
        """Rename what is still put aside; idempotent, by whoever comes next. StreamStopped if a file is missing."""
        waiting = [named for named in manifest.files if _size(self.path(named.name)) != named.bytes]
        if not waiting and not manifest.link:
            return
        print_ = self.fingerprint(manifest)
        folders: set[str] = set()
        for named in waiting:
            self.check_there(manifest, print_)
            final = self.path(named.name)
            self.rename(self.path(named.staged), final, named.bytes, manifest)
            folders.add(os.path.dirname(final))
        for folder in folders:
            sync_folder(folder)
        if manifest.link:
            self.check_there(manifest, print_)
            self.swap(manifest, *manifest.link)

    def fingerprint(self, manifest: Manifest) -> tuple[int, int]:
        """Which file on disk holds this manifest; StreamStopped if it is not there, or is another attempt's."""
        number = manifest.slice.number
        found = self.read(number)
        if (found.slice.id, found.attempt) != (manifest.slice.id, manifest.attempt):
            raise self.broken(f"manifest {number} was replaced by another")
        return _identity(self.manifest_path(number)) or (0, 0)

    def check_there(self, manifest: Manifest, print_: tuple[int, int]) -> None:
        """Nothing becomes visible without its manifest, also when the folder was put back to an older state."""
        if _identity(self.manifest_path(manifest.slice.number)) != print_:
            raise self.broken(f"manifest {manifest.slice.number} has gone while its files were being made visible")

    def rename(self, staged: str, final: str, size: int, manifest: Manifest) -> None:
        if _size(staged) == size:
            make_folders(os.path.dirname(final), self.root)
            with contextlib.suppress(FileNotFoundError):  # someone else has just done it; the size below tells
                os.replace(staged, final)
            self.probe.at("files.file_visible", number=manifest.slice.number)
        if _size(final) != size:
            raise self.broken(
                f"{final} of slice {manifest.slice.number} is missing or has changed size, "
                "although its manifest names it"
            )

    def swap(self, manifest: Manifest, staged: str, target: str) -> None:
        """Point `current` at a refresh. The link is consumed by the rename, so a late writer cannot swap it back."""
        make_folders(self.path(self.layout.refresh(manifest.slice.number, manifest.attempt)), self.root)
        current = self.path(self.layout.current)
        make_folders(os.path.dirname(current), self.root)
        try:
            os.replace(self.path(staged), current)
            sync_folder(os.path.dirname(current))
            self.probe.at("files.link_swapped", number=manifest.slice.number)
        except FileNotFoundError:
            pass  # swapped before
        if not os.path.islink(current) or os.readlink(current) != target:
            raise self.broken(f"{current} does not point to the refresh of slice {manifest.slice.number}")

    def _other_format(self, path: str, error: OtherFormat) -> StreamRefused:
        return StreamRefused(
            f"the output folder was written by another version of penstock: manifest {path}: {error}",
            next_step=f"use that version; or move {self.path(self.layout.data)} and "
            f"{self.path(self.layout.meta)} away, or name another `directory` of the sink, and the stream begins again",
            safe="Nothing was changed: the mark stays, and no file was removed.",
            pipeline=self.layout.pipeline,
            stream=self.layout.stream,
        )

    def broken(self, what: str) -> StreamStopped:
        return StreamStopped(
            f"the output folder cannot be made whole: {what}",
            next_step=(
                "put the folder back as it was, or run `penstock state recover FILE "
                f"--stream {self.layout.stream}`: it withdraws the slices that are not whole and delivers them again"
            ),
            safe="Nothing was changed: the mark stays, and no file was removed.",
            pipeline=self.layout.pipeline,
            stream=self.layout.stream,
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
