"""The streams of a receiver: which there are, which may be created, and the log of each.

A log that cannot be opened makes its own stream unavailable, and no other.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from penstock.config.receiver import Receiver, ReceiverStream
from penstock.core.documents import Document
from penstock.core.names import suggest
from penstock.errors import ConnectionFailed, PenstockError, StreamRefused
from penstock.service import schemas
from penstock.service.events import Say, shown
from penstock.service.problems import Problem
from penstock.service.rows import RowCheck, RowLimits, check_of
from penstock.wal.folders import folder_of, list_streams
from penstock.wal.log import Log, LogOptions
from penstock.wal.opening import open_log

_MICROSECONDS = 1_000_000
#: seconds by which the log's clock may be ahead before it is said
_CLOCK_SECONDS = 60
_UNDECLARED = ReceiverStream()


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream whose log is open."""

    name: str
    log: Log
    #: the version of its schema, and the check that belongs to it
    version: int
    check: RowCheck


@dataclass
class Streams:
    """All streams of one receiver. Logs are opened and created under a lock; what is open is read without it."""

    directory: str
    settings: Receiver
    now: Callable[[], int]
    say: Say
    _open: dict[str, Stream] = field(default_factory=dict)
    _unavailable: dict[str, PenstockError] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def open(self) -> Mapping[str, Stream]:
        return dict(self._open)

    @property
    def unavailable(self) -> Mapping[str, PenstockError]:
        return dict(self._unavailable)

    def options(self, name: str) -> ReceiverStream:
        return self.settings.streams.get(name, _UNDECLARED)

    # ------------------------------------------------------------ opening

    def open_all(self) -> None:
        """Open the log of each stream that has one, and say what was found."""
        for name in list_streams(self.directory):
            with self._lock:
                try:
                    if (found := self._open_or_refuse(name)) is None:
                        continue
                    self._open[name] = found
                    if not self._is_taken(name):
                        self.say(f"stream {shown(name)} has a log and is not declared: nothing is taken for it")
                except PenstockError as error:
                    self._unavailable[name] = error
                    self.say(f"stream {shown(name)} is not available: {_on_one_line(error)}")

    def find(self, name: str) -> Stream | None:
        """A stream that is open; None: it may be created. Problem 404 or 503 otherwise."""
        if not self._is_taken(name):
            raise Problem(
                404,
                f"there is no stream {shown(name)}; {suggest(name, self.settings.streams, 'streams')}",
                "declare it under `receiver: streams:`, or set `create_streams: true`",
            )
        if (found := self._open.get(name)) is not None:
            return found
        if (error := self._unavailable.get(name)) is not None:
            raise Problem(503, f"stream {shown(name)} is not available: {error.what}", error.next_step)
        check_name(name)
        return None

    def create(self, name: str, takes: str) -> Stream:
        """Begin the log of a stream, unless somebody else has done so meanwhile."""
        with self._lock:
            if (found := self.find(name)) is not None:
                return found
            if len(self._open) >= self.settings.limits.stream_count:
                raise Problem(
                    507,
                    f"the receiver has its {self.settings.limits.stream_count:,} streams",
                    "send to one of them, or raise `stream_count` under `receiver: limits:`",
                )
            stream = self._open_one(name, takes)
            assert stream is not None
            self._open[name] = stream
            self.say(f"stream {shown(name)} opened: its log begins")
            return stream

    def check_for(self, name: str, takes: str) -> RowCheck:
        """The check of a stream that may be created."""
        return check_of(self._declared(name) or schemas.free_schema(takes), self._row_limits())

    def _is_taken(self, name: str) -> bool:
        return name in self.settings.streams or self.settings.create_streams

    def _open_or_refuse(self, name: str) -> Stream | None:
        """Open a log that is there; PenstockError if it cannot be, whatever the reason: others can."""
        try:
            return self._open_one(name, None)
        except OSError as error:
            raise ConnectionFailed(
                f"its log cannot be opened: {error.strerror} ({os.path.basename(str(error.filename or ''))})",
                next_step="correct that, and start the receiver again",
            ) from None

    def _open_one(self, name: str, takes: str | None) -> Stream | None:
        """None: a process ended before it had said what the stream takes. The first batch says it."""
        folder = folder_of(self.directory, name)
        log = open_log(folder, self._log_options(), self.now)
        try:
            versions = schemas.read_versions(folder)
            if not versions and takes is None and self._declared(name) is None and log.ledger.clock == 0:
                log.close()
                return None
            wanted = self._wanted(name, versions, takes)
            if versions and versions[-1]["takes"] != wanted["takes"]:
                raise StreamRefused(
                    f"it holds {versions[-1]['takes']}, and is declared to take {wanted['takes']}",
                    next_step="correct `takes`, or give the other batches a stream of their own",
                    stream=name,
                )
            if not versions or versions[-1] != wanted:
                self._say_changed(name, log, versions)
                versions = schemas.add_version(folder, versions, wanted)
        except BaseException:
            log.close()
            raise
        self._say_found(name, log)
        return Stream(name, log, len(versions), check_of(wanted, self._row_limits()))

    def _wanted(self, name: str, versions: list[dict[str, Any]], takes: str | None) -> Document:
        """The schema from now on."""
        if (declared := self._declared(name)) is not None:
            return declared
        if not versions:
            return schemas.free_schema(takes or "rows")
        # Where the declaration was removed from the file, any fields are taken, or nothing at all.
        return schemas.free_schema(versions[-1]["takes"]) if self._is_taken(name) else versions[-1]

    def _say_changed(self, name: str, log: Log, versions: list[dict[str, Any]]) -> None:
        if versions and log.ledger.batches:
            self.say(
                f"stream {shown(name)}: its schema has changed. Batches from now on are of version "
                f"{len(versions) + 1}; those that are held keep theirs, and pipelines that read both say so"
            )

    def _say_found(self, name: str, log: Log) -> None:
        for torn in log.torn:
            gone = "acknowledged batches among them" if torn.was_acknowledged else "nothing acknowledged among them"
            kept = f"kept in {os.path.basename(torn.path)}" if torn.path else "not kept, because the disk is full"
            self.say(
                f"stream {shown(name)}: {torn.bytes:,} bytes were cut off the end of segment {torn.segment} at "
                f"{torn.offset} ({gone}); they are {kept}"
            )
        if log.lost_end:
            self.say(
                f"stream {shown(name)}: the file with its durable end was missing or damaged, and is written again. "
                "Whether its last records are all there is not known: `penstock wal verify` reads what is"
            )
        for segment, damage in log.damages:
            self.say(
                f"stream {shown(name)}: the record at {segment}:{damage.offset} is damaged ({damage.reason}); a copy "
                "is kept beside the log. Pipelines that read it stop there, or skip it with `damaged: skip`"
            )
        if (ahead := log.ledger.clock - self.now()) > _CLOCK_SECONDS * _MICROSECONDS:
            self.say(
                f"stream {shown(name)}: this machine's clock is {ahead / _MICROSECONDS:,.0f} s behind the log's last "
                "record. The log's clock stands until then, and keys are remembered for that much longer"
            )

    def _declared(self, name: str) -> Document | None:
        options = self.settings.streams.get(name)
        if options is None:
            return None
        return schemas.schema_of(options.takes, dict(options.columns), options.primary_key, options.extra_fields)

    def _log_options(self) -> LogOptions:
        log = self.settings.log
        return LogOptions(
            segment_bytes=log.segment_bytes,
            segment_seconds=log.segment_age.total_seconds(),
            budget_bytes=log.budget,
            key_seconds=log.key_time.total_seconds(),
        )

    def _row_limits(self) -> RowLimits:
        limits = self.settings.limits
        return RowLimits(limits.rows, limits.row_bytes, limits.fields)

    def close(self) -> None:
        for stream in self._open.values():
            stream.log.close()
        self._open.clear()


def check_name(name: str) -> None:
    """Problem 404 if no stream can have this name."""
    problem = None
    if not name.strip() or name in (".", ".."):
        problem = "is no name"
    elif "/" in name:
        problem = "contains '/'"
    elif any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in name):
        problem = "contains control characters"
    if problem is None:
        try:
            folder_of("", name)
        except StreamRefused:
            problem = "is too long for the name of a folder"
    if problem is not None:
        raise Problem(404, f"no stream can be named {shown(name)}: it {problem}", "give the stream another name")


def _on_one_line(error: PenstockError) -> str:
    return f"{error.what}. Next: {error.next_step}".replace("\n", " ")
