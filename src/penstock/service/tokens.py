"""Bearer tokens of the receiver: created, listed, revoked, and recognised; only their hashes are kept.

<directory>/.tokens.json    owner only; changed under .tokens.lock, and read again whenever it has changed, so that a
                            token that is revoked stops counting without a restart

A token has 256 random bits, so a plain SHA-256 of it says nothing about it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from penstock.core.documents import canonical, digest
from penstock.core.names import did_you_mean, suggest
from penstock.errors import UNTOUCHED, InputError
from penstock.links.durable import make_folder, sync

FILE = ".tokens.json"
_LOCK = ".tokens.lock"
#: what a secret begins with, so that scanners of repositories and logs recognise it
PREFIX = "penstock_"
#: random bytes of a secret
_SECRET_BYTES = 32
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: send batches, withdraw slices, ask what a producer holds
INGEST = "ingest"
#: see lag and metrics
READ = "read"
#: change what runs
OPERATE = "operate"
#: everything
ADMIN = "admin"
SCOPES = (INGEST, READ, OPERATE, ADMIN)


@dataclass(frozen=True, slots=True)
class Token:
    """Who may do what."""

    name: str
    scopes: frozenset[str]
    #: the streams it is bound to; None: all
    streams: tuple[str, ...] | None = None
    created: datetime | None = None
    #: from then on it does not count; None: never
    expires: datetime | None = None

    def allows(self, scope: str, stream: str | None) -> bool:
        """Whether its holder may do this with a stream; None: with all of them."""
        if scope not in self.scopes and ADMIN not in self.scopes:
            return False
        return self.streams is None or stream in self.streams

    def has_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


@dataclass(frozen=True, slots=True)
class _Entry:
    token: Token
    #: SHA-256 of the secret, in hexadecimal
    hash: str


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The file as it was read, and how it is recognised as the same file."""

    version: tuple[int, ...] | None
    entries: Mapping[str, _Entry]


_NONE = _Loaded(None, MappingProxyType({}))


def _now() -> datetime:
    return datetime.now(UTC)


class TokenFile:
    """The tokens of one receiver's directory. Threads and processes may use it at once.

    Every method raises InputError if the file is damaged, readable by others, or gone after it was there. A file that
    cannot be read never counts as "no tokens".
    """

    def __init__(self, directory: str, now: Callable[[], datetime] = _now) -> None:
        self.directory = directory
        self.path = os.path.join(directory, FILE)
        self._now = now
        self._loaded = _NONE

    @property
    def is_empty(self) -> bool:
        """Whether no token was ever created here. After the last one is revoked, requests are still refused."""
        return self._load().version is None

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        streams: Iterable[str] | None = None,
        expires: datetime | None = None,
    ) -> str:
        """Create a token; its secret, which is not kept and cannot be shown again."""
        token = self._valid(Token(name, frozenset(scopes), _named(streams), self._now(), expires))
        secret = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")
        make_folder(self.directory, 0o700)
        with self._changing() as entries:
            if name in entries:
                raise InputError(
                    f"there is already a token named '{name}'",
                    safe=UNTOUCHED,
                    next_step="choose another name, or revoke that one first: penstock token revoke FILE "
                    f"--name {name}",
                )
            entries[name] = _Entry(token, _hash(secret))
        return secret

    def list(self) -> list[Token]:
        """All tokens, by name, with those that have expired."""
        return [entry.token for _, entry in sorted(self._load().entries.items())]

    def revoke(self, name: str) -> None:
        """Remove a token. Requests with it are refused from now on, also by a receiver that is running."""
        known = self._load().entries  # no lock is created in a directory without tokens
        if name not in known:
            raise self._unknown(name, known)
        with self._changing() as entries:
            if entries.pop(name, None) is None:
                raise self._unknown(name, entries)

    def authenticate(self, bearer: str) -> Token | None:
        """The token with this secret; None: there is none, or it has expired. Compares with every hash, in full."""
        wanted = _hash(bearer)
        found: Token | None = None
        for entry in self._load().entries.values():
            if hmac.compare_digest(entry.hash, wanted):
                found = entry.token
        return None if found is None or found.has_expired(self._now()) else found

    def _valid(self, token: Token) -> Token:
        if not _NAME.fullmatch(token.name):
            raise InputError(
                f"{token.name[:80]!r} cannot name a token",
                safe=UNTOUCHED,
                next_step="use up to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit",
            )
        for scope in sorted(token.scopes - set(SCOPES)):
            raise InputError(
                f"there is no scope '{scope}'{did_you_mean(scope, SCOPES)}",
                safe=UNTOUCHED,
                next_step=f"use one or more of: {', '.join(SCOPES)}",
            )
        if not token.scopes:
            raise InputError(
                f"token '{token.name}' has no scope, so it would allow nothing",
                safe=UNTOUCHED,
                next_step=f"give it one or more of: {', '.join(SCOPES)}",
            )
        if ADMIN in token.scopes and token.streams is not None:
            raise InputError(
                f"token '{token.name}' has the scope {ADMIN}, which cannot be bound to streams",
                safe=UNTOUCHED,
                next_step=f"leave the streams out, or use one or more of: {', '.join(SCOPES[:-1])}",
            )
        if token.expires is not None and token.expires.tzinfo is None:
            raise ValueError("the time at which a token expires needs a time zone")
        return token

    def _unknown(self, name: str, entries: Mapping[str, _Entry]) -> InputError:
        return InputError(
            f"there is no token '{name}' in {self.path}; {suggest(name, entries, 'tokens')}",
            safe=UNTOUCHED,
            next_step="list them: penstock token list FILE",
        )

    def _load(self) -> _Loaded:
        """The tokens, read again if the file has changed."""
        loaded = self._loaded
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            if loaded.version is None:
                return loaded
            raise self._refused("was there, and is gone") from None
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror})") from None
        if loaded.version != _version_of(status):
            self._loaded = loaded = self._read()
        return loaded

    def _read(self) -> _Loaded:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                raw = file.read()
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror})") from None
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(
                f"{self.path} can be read or changed by other users (mode {stat.S_IMODE(status.st_mode):04o})",
                safe="No request is accepted.",
                next_step=f"check who changed it, then: chmod 600 {self.path}",
            )
        try:
            document: dict[str, Any] = json.loads(raw)
            if document.pop("checksum") != digest(canonical(document)):
                raise ValueError("its checksum is wrong")
            if document["version"] != _VERSION:
                raise ValueError(f"it has version {document['version']}, and this penstock reads version {_VERSION}")
            entries = {name: _entry(name, each) for name, each in document["tokens"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._refused(f"is damaged ({error})") from None
        return _Loaded(_version_of(status), MappingProxyType(entries))

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"{self.path} {what}: it says who may send",
            safe="No request is accepted.",
            next_step="put the file back from a backup. Without one, stop the receiver, move the file away, create new "
            "tokens (penstock token create), and give them to all senders",
        )

    @contextmanager
    def _changing(self) -> Iterator[dict[str, _Entry]]:
        """The entries, to be changed in place; written when the block ends without an error."""
        lock = os.open(os.path.join(self.directory, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = dict(self._load().entries)
            yield entries
            self._write(entries)
        finally:
            os.close(lock)

    def _write(self, entries: Mapping[str, _Entry]) -> None:
        document: dict[str, Any] = {
            "version": _VERSION,
            "tokens": {name: _document(entry) for name, entry in entries.items()},
        }
        text = canonical({**document, "checksum": digest(canonical(document))})
        new = f"{self.path}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        os.rename(new, self.path)
        sync(self.directory)
        self._loaded = self._read()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _named(streams: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if streams is None else tuple(sorted(set(streams)))


def _version_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _document(entry: _Entry) -> dict[str, Any]:
    token = entry.token
    return {
        "hash": entry.hash,
        "scopes": sorted(token.scopes),
        "streams": None if token.streams is None else list(token.streams),
        "created": _text(token.created),
        "expires": _text(token.expires),
    }


def _entry(name: str, document: Mapping[str, Any]) -> _Entry:
    scopes, streams = document["scopes"], document["streams"]
    times = (None if document[key] is None else datetime.fromisoformat(document[key]) for key in ("created", "expires"))
    token = Token(name, frozenset(scopes), None if streams is None else tuple(streams), *times)
    return _Entry(token, str(document["hash"]))


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
