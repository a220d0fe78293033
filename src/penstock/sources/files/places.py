"""Where files are: a seam with one implementation, a local folder. Another one lists and opens objects of a bucket.

A file's version is its size, modification time and inode. A reader names the version that it wants, and gets that one
or an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.errors import StreamFailed, StreamRefused
from penstock.links.globs import depth, fixed_folders, matches

if TYPE_CHECKING:
    import pyarrow as pa

#: names that begin with one of these are left out, as Spark, Arrow and Hive do
HIDDEN = ("_", ".")


class Version(NamedTuple):
    """What tells one content of a path from another."""

    size: int
    #: time of modification, in nanoseconds
    mtime: int
    inode: int


class File(NamedTuple):
    """One version of a file."""

    #: relative to the place; bytes that are not UTF-8 are surrogates
    path: str
    version: Version


@dataclass
class Listing:
    """The files of a place that match, and how many names were left out."""

    files: list[File]
    #: symbolic links that match
    links: list[str]


class Place(Protocol):
    """A place with files. Small and picklable: workers open files of it."""

    @property
    def shown(self) -> str:
        """The place for people."""
        ...

    def listing(self, patterns: Sequence[str], exclude: Sequence[str]) -> Listing:
        """List the files that match; StreamRefused if a folder cannot be listed."""
        ...

    def version(self, path: str) -> Version | None:
        """The version that a path has now; None: there is no such file."""
        ...

    def open(self, file: File, stream: str) -> Any:
        """A context manager with the file as Arrow reads it; StreamFailed if it is not this version, before or after.

        The version is compared again when the block is left without an error.
        """
        ...


def shown(path: str) -> str:
    """A path for people: on one line, whatever is in the name."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """See `Place`."""

    root: str

    @property
    def shown(self) -> str:
        return self.root

    def listing(self, patterns: Sequence[str], exclude: Sequence[str]) -> Listing:
        found = Listing([], [])
        # Two patterns may lead to one file.
        known: set[str] = set()
        for pattern in patterns:
            for path, entry in self._walk(fixed_folders(pattern), depth(pattern)):
                if path in known or not matches(path, [pattern]) or matches(path, exclude):
                    continue
                known.add(path)
                if entry.is_symlink():
                    found.links.append(path)
                elif (version := _version_of(entry)) is not None:
                    found.files.append(File(path, version))
        return found

    def _walk(self, above: str, most: int | None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every file and link below a folder, to a depth."""
        waiting = [above]
        while waiting:
            folder = waiting.pop()
            path = os.path.join(self.root, folder) if folder else self.root
            level = folder.count("/") + 2 if folder else 1
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        if entry.name.startswith(HIDDEN):
                            continue
                        inner = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if most is None or level < most:
                                waiting.append(inner)
                        elif most is None or level == most:
                            yield inner, entry
            except FileNotFoundError:
                # It was removed meanwhile, or the folder that a pattern begins with does not exist yet.
                continue
            except (PermissionError, NotADirectoryError) as error:
                raise StreamRefused(
                    f"{shown(path)} cannot be listed: {error.strerror}",
                    next_step="give this user the right to read the folder, or leave it out with a narrower `path`",
                ) from None

    def version(self, path: str) -> Version | None:
        try:
            found = os.lstat(os.path.join(self.root, path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _version(found) if stat.S_ISREG(found.st_mode) else None

    @contextmanager
    def open(self, file: File, stream: str) -> Iterator[pa.NativeFile]:
        import pyarrow as pa

        path = os.path.join(self.root, file.path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise changed_error(self, file, None, stream) from None
        except OSError as error:
            raise StreamFailed(
                f"{shown(path)} cannot be opened: {error.strerror}",
                next_step="give this user the right to read it, then run again",
                stream=stream,
            ) from None
        try:
            self._require(file, descriptor, stream)
            # The file that was compared, also if its name belongs to another one by now.
            with pa.OSFile(f"/dev/fd/{descriptor}") as native:
                yield native
            # A file that was rewritten while it was read may have given some of both.
            self._require(file, descriptor, stream)
        finally:
            os.close(descriptor)

    def _require(self, file: File, descriptor: int, stream: str) -> None:
        now = _version(os.fstat(descriptor))
        if now != file.version:
            raise changed_error(self, file, now, stream)


def _version_of(entry: os.DirEntry[str]) -> Version | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return _version(found) if stat.S_ISREG(found.st_mode) else None


def _version(found: os.stat_result) -> Version:
    return Version(found.st_size, found.st_mtime_ns, found.st_ino)


def changed_error(place: Place, file: File, now: Version | None, stream: str) -> StreamFailed:
    """A slice names a version of a file that is not there any more."""
    what = "is gone" if now is None else f"has changed: {describe_change(file.version, now)}"
    return StreamFailed(
        f"{shown(file.path)} in {place.shown} {what}, and an open slice reads it as it was",
        next_step="put the file back as it was and run again; or drop the slice with "
        f"`penstock state recover FILE --stream {stream}`: the next slice is planned again",
        stream=stream,
    )


def describe_change(was: Version, now: Version) -> str:
    """How one version follows another."""
    if was.size != now.size:
        return f"it had {was.size:,} bytes and has {now.size:,}"
    if was.mtime != now.mtime:
        return "it was modified"
    return "another file has its name"
