"""A local folder: files are staged beside where they become visible, and renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InputError, StreamFailed, StreamRefused, problems_of
from penstock.links.durable import make_folder, sync, write_durably
from penstock.ports import Probe
from penstock.sinks.files.folder import Damaged, NotStaged, Staged
from penstock.sinks.files.layout import Layout, attempt_number, list_names, manifest_number
from penstock.sinks.files.manifest import Manifest, SliceFile

if TYPE_CHECKING:
    import pyarrow as pa

#: manifests above a known one that are looked for by name, before the folder is listed
LOOKED_FOR = 16


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a disk."""

    root: str

    @property
    def place(self) -> str:
        return self.root

    @property
    def checked_manifests(self) -> int:
        return 16

    @property
    def concurrency(self) -> int:
        return 1

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _explain(self.root, error) from error

    # ------------------------------------------------------------ before a slice

    def connect(self) -> None:
        existing = self.root
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        why = None if os.access(existing, os.W_OK | os.X_OK) else f"no permission to write in {existing}"
        if why := why if os.path.isdir(existing) else f"{existing} is not a folder":
            raise InputError(
                f"the output folder {self.root} cannot be written: {why}",
                next_step="choose another sink.directory, or give this user the right to write there",
            )

    def find_problems(self, layout: Layout, *, is_refresh: bool) -> Iterator[StreamRefused]:
        yield from problems_of([lambda: self.check_targets(layout, ())])

    def advise_on_mixing(self, stream: str) -> str:
        return (
            f"run `penstock state migrate FILE --stream {stream}`: it moves that folder away, and the "
            "next run begins the stream again; or rename the stream in the pipeline file, and set `table` to the table "
            "that it reads"
        )

    def check_targets(self, layout: Layout, folders: Iterable[str]) -> None:
        """A rename does not reach another file system.

        If only the rename failed, after the manifest was written, a slice would be committed and never become visible.
        """
        staged = self.path(layout.meta)
        for folder in (layout.data, *folders):
            path = self.path(folder)
            if _find_device(path) != _find_device(staged):
                raise StreamRefused(
                    f"the folder {path} is on another file system than {staged}, where files are staged: they could "
                    "not be renamed into it, and readers would never see them",
                    next_step="set `directory` of the sink to a folder on that file system, or make "
                    f"{path} a folder of the file system that holds {self.root}",
                )

    def names(self, folder: str, limit: int | None = None) -> list[str]:
        return list_names(self.path(folder))

    def has(self, folder: str) -> bool:
        return os.path.isdir(self.path(folder))

    def current(self, layout: Layout) -> str:
        return layout.current

    def has_current(self, layout: Layout) -> bool:
        return os.path.islink(self.path(layout.current))

    # ------------------------------------------------------------ small documents

    def read(self, name: str) -> str | None:
        try:
            with open(self.path(name), encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def create(self, name: str, text: str, near: str, before: Callable[[], None]) -> bool:
        """link() fails where rename() would replace."""
        folder = os.path.dirname(self.path(name))
        make_folder(folder)
        make_folder(self.path(near))
        temporary = os.path.join(self.path(near), f"{os.path.basename(name)}.{uuid.uuid4().hex}")
        try:
            write_durably(temporary, text)
            before()
            os.link(temporary, self.path(name))
        except FileExistsError:
            return False
        finally:
            _remove(temporary)
        sync(folder)
        return True

    def overwrite(self, name: str, text: str) -> None:
        temporary = f"{self.path(name)}.{uuid.uuid4().hex}"
        try:
            with open(temporary, "w", encoding="ascii") as file:
                file.write(text)
            with suppress(FileNotFoundError):  # swept by another process, which knows a newer slice
                os.replace(temporary, self.path(name))
        finally:
            _remove(temporary)

    def remove(self, name: str) -> None:
        _remove(self.path(name))

    def version(self, name: str) -> object | None:
        stat = _stat(self.path(name))
        return (stat.st_ino, stat.st_mtime_ns) if stat else None

    def manifest_numbers(self, layout: Layout, above: int) -> list[int]:
        # From the highest down: a process that creates manifests meanwhile creates the lower ones first.
        window = range(above + LOOKED_FOR, above, -1)
        found = [number for number in window if os.path.exists(self.path(layout.manifest(number)))] if above else []
        if above and len(found) < LOOKED_FOR:
            return found[::-1]
        numbers = map(manifest_number, list_names(self.path(layout.manifests)))
        return sorted(number for number in numbers if number is not None and number > above)

    # ------------------------------------------------------------ data files

    def prepare(self, layout: Layout, number: int, attempt: str) -> str:
        staged = layout.attempt(number, attempt)
        make_folder(self.path(staged))
        return staged

    def name_attempt(self, pipeline: str, attempt: str) -> str:
        return attempt

    def stage(self, staged: str, final: str) -> _LocalFile:
        return _LocalFile(self, f"{staged}/{os.path.basename(final)}")

    def check_staged(self, file: SliceFile) -> int:
        stat = _stat(self.path(file.staged))
        if stat is None:
            raise NotStaged(f"{self.path(file.staged)} does not exist any more")
        return stat.st_size

    def size(self, name: str) -> int | None:
        stat = _stat(self.path(name))
        return stat.st_size if stat else None

    def publish(self, file: SliceFile) -> int | None:
        staged, final = self.path(file.staged), self.path(file.name)
        if self.size(file.staged) == file.bytes:
            make_folder(os.path.dirname(final))
            with suppress(FileNotFoundError):  # another process has just done it; the size below tells
                os.replace(staged, final)
        return self.size(file.name)

    def published(self, names: Collection[str]) -> None:
        for folder in {os.path.dirname(self.path(name)) for name in names}:
            sync(folder)

    # ------------------------------------------------------------ a full refresh

    def stage_current(self, layout: Layout, number: int, attempt: str) -> tuple[str, str] | None:
        staged = f"{layout.attempt(number, attempt)}/current-{uuid.uuid4().hex}"
        target = os.path.relpath(layout.refresh(number, attempt), layout.data)
        folder = os.path.dirname(self.path(staged))
        make_folder(folder)
        os.symlink(target, self.path(staged))
        sync(folder)
        return staged, target

    def point(self, layout: Layout, manifest: Manifest, probe: Probe) -> None:
        """Swap the link. The rename consumes the staged one, so a late writer cannot swap it back."""
        if manifest.link is None:
            return
        staged, target = manifest.link
        make_folder(self.path(layout.refresh(manifest.slice.number, manifest.attempt)))
        current = self.path(layout.current)
        make_folder(os.path.dirname(current))
        try:
            os.replace(self.path(staged), current)
            sync(os.path.dirname(current))
            probe.at("files.link_swapped", number=manifest.slice.number)
        except FileNotFoundError:
            pass  # an earlier process has swapped it
        if not os.path.islink(current) or os.readlink(current) != target:
            raise Damaged(f"{current} does not point to the refresh of slice {manifest.slice.number}")

    def unpoint(self, layout: Layout, manifest: Manifest) -> None:
        current = self.path(layout.current)
        if manifest.link and os.path.islink(current) and os.readlink(current) == manifest.link[1]:
            os.unlink(current)

    # ------------------------------------------------------------ leftovers and damage

    def sweep(self, layout: Layout, upto: int, named: Callable[[int], set[str]]) -> None:
        staged = self.path(layout.staged)
        for name in list_names(staged):
            number = attempt_number(name)
            if number is not None and number <= upto:
                _remove_except(os.path.join(staged, name), {os.path.basename(file) for file in named(number)})
        for name in list_names(self.path(layout.meta)):
            if name.startswith(f"{os.path.basename(layout.newest)}."):
                _remove(self.path(f"{layout.meta}/{name}"))
        # The target of `current` and the one before it stay, for readers that are still at work.
        refreshes = self.path(layout.refreshes)
        numbered = sorted((number, name) for name in list_names(refreshes) if (number := attempt_number(name)))
        for _, name in numbered[:-2]:
            shutil.rmtree(os.path.join(refreshes, name), ignore_errors=True)

    def withdraw(self, file: SliceFile, target: str) -> None:
        self.move(file.name, target)
        self.move(file.staged, target)

    def walk(self, folder: str) -> Iterator[str]:
        for place, _, names in os.walk(self.path(folder)):
            for name in names:
                yield os.path.relpath(os.path.join(place, name), self.root)

    def move(self, name: str, target: str) -> None:
        if os.path.exists(self.path(name)):
            make_folder(os.path.dirname(self.path(target)))
            os.replace(self.path(name), self.path(target))
            sync(os.path.dirname(self.path(name)))

    def archive(self, layout: Layout, label: str, probe: Probe) -> Sequence[str]:
        from penstock.sinks.files.archive import archive

        return archive(self, layout, label, probe)


class _LocalFile:
    """A file in the folder of an attempt."""

    def __init__(self, folder: LocalFolder, name: str) -> None:
        import pyarrow as pa

        self.folder, self.name = folder, name
        self.stream: pa.NativeFile = pa.OSFile(folder.path(name), "wb")

    def finish(self) -> Staged:
        with open(self.folder.path(self.name), "rb") as file:
            os.fsync(file.fileno())
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        sync(os.path.dirname(self.folder.path(self.name)))
        return Staged(self.name, size, checksum)

    def discard(self) -> None:
        _remove(self.folder.path(self.name))


def _find_device(path: str) -> int:
    """The file system of a folder, or of the folder in which it would be created."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove_except(folder: str, keep: set[str]) -> None:
    """Remove the other files of a folder; a writer that lost the race may still be writing into it."""
    for name in list_names(folder):
        if name not in keep:
            _remove(os.path.join(folder, name))
    with suppress(OSError):  # not empty, or gone: the next sweep removes it
        os.rmdir(folder)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _explain(root: str, error: OSError) -> StreamFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return StreamFailed(
            f"no space left for {root}",
            next_step="free some space and run again; the slice is moved again from its start",
            safe="Nothing was lost: the mark has not moved, and incomplete files are not visible.",
        )
    if error.errno == errno.EXDEV:
        return StreamFailed(
            f"{error.filename2 or error.filename or root} is on another file system than the folder in which files are "
            "staged: a file cannot be renamed into it",
            next_step=f"make everything below {root} one file system again, then run again to make the files visible",
            safe="Nothing was lost: the files are staged, and the next run makes them visible.",
        )
    return StreamFailed(
        f"cannot write to {root}: {error.strerror or error}",
        next_step="check that the folder exists and that this user may write in it, then run again",
    )
