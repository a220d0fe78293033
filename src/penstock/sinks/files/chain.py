"""The chain on disk: which manifests exist, whether they follow each other, and whether their files are complete."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from penstock.core.content import OtherFormat
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, StreamStopped
from penstock.links.durable import make_folder, sync
from penstock.ports import Probe
from penstock.sinks.files.layout import Layout, list_names, manifest_number
from penstock.sinks.files.manifest import Manifest, SliceFile

#: how many of the newest manifests are read and compared each time; `recover` reads all.
#: An older manifest was compared when it was written: later only a mix of two folders can break the chain there.
CHECKED_MANIFESTS = 16
#: what an error says is safe
UNCHANGED = "Nothing was changed: the mark stays, and no file was removed."


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
        names = list_names(self.path(self.layout.manifests))
        return sorted(number for number in map(manifest_number, names) if number is not None)

    def read(self, number: int) -> Manifest:
        """One manifest; StreamStopped if it is damaged or is another stream's.

        StreamRefused if another version of penstock wrote it: `recover` must not withdraw it.
        """
        path = self.manifest_path(number)
        try:
            with open(path, encoding="ascii") as file:
                manifest = Manifest.parse(file.read())
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
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise self.broken(f"manifest {path} cannot be read: {error}") from error
        return manifest

    def last(self) -> Manifest | None:
        """The newest manifest of an unbroken chain, with its files and its predecessor's visible; None: no manifest."""
        numbers = self.numbers()
        if not numbers:
            return None
        self.check_unbroken(numbers)
        tail = [self.read(number) for number in numbers[-CHECKED_MANIFESTS:]]
        self.check_links(tail)
        newest = tail[-1]
        # A refresh replaces what came before, so only its own files must exist.
        for manifest in tail[-1:] if newest.slice.kind is Kind.REFRESH else tail[-2:]:
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
        """Rename the files that are still staged. Any process can finish this; StreamStopped if a file is missing."""
        number = manifest.slice.number
        staged = [file for file in manifest.files if _size(self.path(file.name)) != file.bytes]
        if not staged and not manifest.link:
            return
        stored = self.read(number)
        if (stored.slice.id, stored.attempt) != (manifest.slice.id, manifest.attempt):
            raise self.broken(f"manifest {number} was replaced by another")
        identity = _identity(self.manifest_path(number)) or (0, 0)
        for file in staged:
            self._check_unchanged(number, identity)
            self._rename(file, number)
        for folder in {os.path.dirname(self.path(file.name)) for file in staged}:
            sync(folder)
        if manifest.link:
            self._check_unchanged(number, identity)
            self._swap(manifest, *manifest.link)

    def _check_unchanged(self, number: int, identity: tuple[int, int]) -> None:
        """Nothing becomes visible without its manifest, even if the folder is restored to an older state meanwhile."""
        if _identity(self.manifest_path(number)) != identity:
            raise self.broken(f"manifest {number} has gone while its files were being made visible")

    def _rename(self, file: SliceFile, number: int) -> None:
        staged, final = self.path(file.staged), self.path(file.name)
        if _size(staged) == file.bytes:
            make_folder(os.path.dirname(final))
            with contextlib.suppress(FileNotFoundError):  # another process has just done it; the size below tells
                os.replace(staged, final)
            self.probe.at("files.file_visible", number=number)
        if _size(final) != file.bytes:
            what = f"{final} of slice {number} is missing or has changed size, although its manifest names it"
            raise self.broken(what)

    def _swap(self, manifest: Manifest, staged: str, target: str) -> None:
        """Point `current` at a refresh. The link is consumed by the rename, so a late writer cannot swap it back."""
        make_folder(self.path(self.layout.refresh(manifest.slice.number, manifest.attempt)))
        current = self.path(self.layout.current)
        make_folder(os.path.dirname(current))
        try:
            os.replace(self.path(staged), current)
            sync(os.path.dirname(current))
            self.probe.at("files.link_swapped", number=manifest.slice.number)
        except FileNotFoundError:
            pass  # an earlier process has swapped it
        if not os.path.islink(current) or os.readlink(current) != target:
            raise self.broken(f"{current} does not point to the refresh of slice {manifest.slice.number}")

    def broken(self, what: str) -> StreamStopped:
        return StreamStopped(
            f"the output folder is incomplete and cannot be repaired: {what}",
            next_step="restore the folder, or run `penstock state recover FILE --stream "
            f"{self.layout.stream}`: it withdraws the incomplete slices, and the next run delivers them again",
            safe=UNCHANGED,
        )


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _identity(path: str) -> tuple[int, int] | None:
    stat = _stat(path)
    return (stat.st_ino, stat.st_mtime_ns) if stat else None


def _size(path: str) -> int | None:
    stat = _stat(path)
    return stat.st_size if stat else None
