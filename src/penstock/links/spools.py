"""A folder for spools: what a source gathers and a sink stages on disk, until the sink holds the slice.

    <folder>/<pipeline>/<stream>/<number>-gathering-<attempt>/   a spool that is being written
    <folder>/<pipeline>/<stream>/<number>-gathered-<digest>/     a spool that is closed; its files are in `_files.json`
    <folder>/<pipeline>/<stream>/<number>-staged-<attempt>/      what a sink has staged
    <folder>/<pipeline>/<stream>/<number>-sealed-<slice id>      a seal
    <folder>/<pipeline>/.kept/                                   what a sink remembers beyond a slice

Names are encoded, so that a pipeline or a stream may be called anything. A file is synced to disk before its name is
used, and a name before anybody relies on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote

from penstock.core.documents import canonical, digest, parse
from penstock.links.durable import make_folder, sync, write_durably
from penstock.ports import Spool

_FILES = "_files.json"
#: the mode of folders: only this user reads spools
_PRIVATE = 0o700
_NUMBER = re.compile(r"^(\d{10,})-")


@dataclass(frozen=True, slots=True)
class FolderSpool:
    """A spool that is being written."""

    path: str


@dataclass(frozen=True, slots=True)
class FolderSpools:
    """See `ports.Spools`."""

    folder: str
    pipeline: str

    # ------------------------------------------------------------ gathering

    @contextmanager
    def gather(self, stream: str, number: int, attempt: str) -> Iterator[FolderSpool]:
        path = self._path(stream, number, "gathering", attempt)
        make_folder(path, _PRIVATE)
        try:
            yield FolderSpool(path)
        except Exception:
            shutil.rmtree(path, ignore_errors=True)
            raise
        # What was closed has another name by now.
        shutil.rmtree(path, ignore_errors=True)

    def close_gathered(self, spool: Spool) -> str:
        files = {name: _digest_of(os.path.join(spool.path, name)) for name in sorted(os.listdir(spool.path))}
        for name in files:
            sync(os.path.join(spool.path, name))
        text = canonical({"files": files})
        write_durably(os.path.join(spool.path, _FILES), text)
        found = digest(text)
        above, name = os.path.split(spool.path)
        final = os.path.join(above, f"{name.partition('-')[0]}-gathered-{found}")
        try:
            os.rename(spool.path, final)
        except OSError:
            if self._read(final) is None:
                # A damaged spool of the same files, which an earlier attempt has left.
                shutil.rmtree(final)
                os.rename(spool.path, final)
        sync(above)
        return found

    def find_gathered(self, stream: str, digest: str) -> str | None:
        for name in self._names(stream):
            if name.endswith(f"-gathered-{digest}"):
                path = os.path.join(self._stream(stream), name)
                return path if self._read(path) == digest else None
        return None

    def _read(self, path: str) -> str | None:
        """The digest of a closed spool, if its files are those that were gathered."""
        try:
            with open(os.path.join(path, _FILES), encoding="utf-8") as file:
                text = file.read()
            files = parse(text)["files"]
            whole = all(_digest_of(os.path.join(path, name)) == known for name, known in files.items())
        except (OSError, ValueError):
            return None
        return digest(text) if whole else None

    # ------------------------------------------------------------ staging and sealing

    def stage(self, stream: str, number: int, attempt: str) -> str:
        path = self._path(stream, number, "staged", attempt)
        make_folder(path, _PRIVATE)
        return path

    def find_staged(self, stream: str, number: int, attempt: str) -> str:
        return self._path(stream, number, "staged", attempt)

    def write_seal(self, stream: str, number: int, slice_id: str, text: str) -> str:
        path = self._path(stream, number, "sealed", slice_id)
        make_folder(os.path.dirname(path), _PRIVATE)
        written = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
        write_durably(written, text)
        try:
            with suppress(FileExistsError):
                os.link(written, path)
        finally:
            os.unlink(written)
        sync(os.path.dirname(path))
        with open(path, encoding="utf-8") as file:
            return file.read()

    def read_seals(self, stream: str) -> Sequence[str]:
        found = []
        for name in self._names(stream):
            if re.fullmatch(r"\d+-sealed-[0-9a-f]+", name):
                with suppress(FileNotFoundError), open(os.path.join(self._stream(stream), name)) as file:
                    found.append(file.read())
        return found

    def remove_seal(self, stream: str, number: int, slice_id: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(stream, number, "sealed", slice_id))

    # ------------------------------------------------------------ keeping

    def keep(self) -> str:
        path = self.find_kept()
        make_folder(path, _PRIVATE)
        return path

    def find_kept(self) -> str:
        # No stream has this name: "." is encoded in theirs.
        return os.path.join(self.folder, _encoded(self.pipeline), ".kept")

    # ------------------------------------------------------------ sweeping

    def sweep(self, stream: str, number: int) -> None:
        for name in self._names(stream):
            match = _NUMBER.match(name)
            if match and int(match.group(1)) <= number:
                path = os.path.join(self._stream(stream), name)
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(path)

    # ------------------------------------------------------------ names

    def _stream(self, stream: str) -> str:
        return os.path.join(self.folder, _encoded(self.pipeline), _encoded(stream))

    def _path(self, stream: str, number: int, kind: str, name: str) -> str:
        return os.path.join(self._stream(stream), f"{number:010}-{kind}-{name}")

    def _names(self, stream: str) -> list[str]:
        try:
            return sorted(os.listdir(self._stream(stream)))
        except FileNotFoundError:
            return []


def _encoded(name: str) -> str:
    """A name as one folder; "." and ".." are no names of folders."""
    return quote(name, safe="").replace(".", "%2E")


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
