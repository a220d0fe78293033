"""Where a command finds a worker: a folder that only its owner can enter, a socket named after the store, a lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import InputError
from penstock.links.cache import cache_folder
from penstock.warm import wire

SOCKET, LOCK, ALIAS = ".sock", ".lock", ".file"


def folder_path() -> Path:
    """The folder of this user's workers: that of the login if there is one, or else among the caches."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and _is_private(runtime):
        return Path(runtime, "penstock")
    return cache_folder() / "warm"


def name_of(text: str) -> str:
    """A short name for a store's address or a file's path; it tells nothing about either."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


class WorkerFolder:
    """The folder of workers, held open: what is in it is reached through it, wherever its path leads by now.

    So a path may be longer than the 107 bytes that a socket's address has room for.
    """

    def __init__(self, path: Path) -> None:
        """OSError if there is no such folder, InputError if others could be in it."""
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(self._handle)
            raise InputError(
                f"other users can access the folder of warm workers {path}",
                next_step=f"check who created it, then delete it or run `chmod 700 {path}`",
            )

    @classmethod
    def make(cls) -> WorkerFolder:
        """The folder, made if it is not there."""
        path = folder_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            return cls(path)
        except OSError as error:
            raise InputError(
                f"the folder of warm workers {path} cannot be used: {error.strerror}",
                next_step="make it a folder of this user, or set XDG_CACHE_HOME to another folder",
            ) from error

    @classmethod
    def find(cls) -> WorkerFolder | None:
        """The folder, if it is there and private."""
        try:
            return cls(folder_path())
        except (OSError, InputError):
            return None  # then there is no worker that a command may use

    def __enter__(self) -> WorkerFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    # ------------------------------------------------------------ sockets

    def listen(self, name: str) -> socket.socket:
        """A socket that commands connect to. The caller holds the lock, so whatever has its name is a leftover."""
        self.remove(name + SOCKET)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self._reach(name + SOCKET))
            os.chmod(self._reach(name + SOCKET), 0o600)
            listening.listen(16)
        except OSError:
            listening.close()
            raise
        return listening

    def connect(self, name: str, seconds: float) -> socket.socket | None:
        """A connection to a worker of this user; None: none listens. The socket of a dead worker is removed."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        try:
            connection.connect(self._reach(name + SOCKET))
        except OSError as error:
            connection.close()
            if error.errno == errno.ECONNREFUSED:
                self._remove_stale(name)
            return None
        if not wire.same_user(connection):
            connection.close()
            return None
        return connection

    def any_socket(self) -> bool:
        """Whether any worker may be there."""
        return any(entry.endswith(SOCKET) for entry in os.listdir(self._handle))

    def _remove_stale(self, name: str) -> None:
        with self.locked(name) as ours:
            if ours:
                self.remove(name + SOCKET)
                self.remove_aliases(name)

    # ------------------------------------------------------------ files and stores

    def set_alias(self, file: str, name: str) -> None:
        """Note which worker a pipeline file's runs find, so that a command need not read the file for that."""
        alias = name_of(os.path.realpath(file)) + ALIAS
        self.remove(alias)
        os.symlink(name, alias, dir_fd=self._handle)

    def alias(self, file: str) -> str | None:
        try:
            return os.readlink(name_of(os.path.realpath(file)) + ALIAS, dir_fd=self._handle)
        except OSError:
            return None

    def remove_aliases(self, name: str) -> None:
        for entry in os.listdir(self._handle):
            if entry.endswith(ALIAS):
                with contextlib.suppress(OSError):
                    if os.readlink(entry, dir_fd=self._handle) == name:
                        self.remove(entry)

    def remove(self, entry: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry, dir_fd=self._handle)

    # ------------------------------------------------------------ locks

    def lock(self, name: str) -> int | None:
        """The lock of a store's worker, held until the handle is closed; None: another process has it."""
        while True:
            handle = os.open(name + LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            if self._has(name + LOCK, handle):
                return handle
            os.close(handle)  # its owner has removed it meanwhile

    def unlock(self, name: str, handle: int) -> None:
        """Remove the lock that is held, and give it up."""
        self.remove(name + LOCK)
        os.close(handle)

    def _has(self, entry: str, handle: int) -> bool:
        try:
            return os.path.samestat(os.stat(entry, dir_fd=self._handle, follow_symlinks=False), os.fstat(handle))
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Whether the lock is free; it is held meanwhile."""
        handle = self.lock(name)
        try:
            yield handle is not None
        finally:
            if handle is not None:
                self.unlock(name, handle)

    def _reach(self, entry: str) -> str:
        return f"/proc/self/fd/{self._handle}/{entry}"


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
