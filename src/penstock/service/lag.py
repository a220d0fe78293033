"""`GET /v1/lag`: how far the origin of each stream was read, and how much of its log each reader has not read yet.

Computed when it is asked for, from what the logs hold; nothing is counted beside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from penstock.core.messages import stamp
from penstock.errors import PenstockError
from penstock.wal.durable_end import End, read_end
from penstock.wal.folders import folder_of, list_streams
from penstock.wal.inspection import read_ledger
from penstock.wal.lag import LogLag, ReaderLag, measure_lag
from penstock.wal.ledger import Ledger
from penstock.wal.meta import SourceState

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamLag:
    """A stream of the receiver, its sources and its readers."""

    stream: str
    #: None: nothing was sent to it yet, or its log cannot be read
    log: LogLag | None
    #: what was last heard of each source, by name
    sources: Mapping[str, SourceState]
    #: why its log cannot be read
    problem: str | None = None


@dataclass(frozen=True)
class LagFeed:
    """Where the lag of a receiver's streams is read."""

    #: the receiver's directory
    directory: str
    #: microseconds since 1970
    now: Callable[[], int]
    #: the ledger of a stream whose log is open in this process; None: it is not, and is read from disk
    ledger: Callable[[str], Ledger | None]
    #: why a stream is not available; None: it is
    problem: Callable[[str], str | None] = lambda _stream: None
    #: what was read from disk, by folder, and for which durable end
    _read: dict[str, tuple[End, Mapping[str, SourceState]]] = field(default_factory=dict, init=False, repr=False)

    def measure(self, allows: Callable[[str], bool] = lambda _: True) -> list[StreamLag]:
        """The streams that are allowed, by name. One that cannot be read holds up no other."""
        return [self._measure(stream) for stream in list_streams(self.directory) if allows(stream)]

    def _measure(self, stream: str) -> StreamLag:
        folder = folder_of(self.directory, stream)
        sources: Mapping[str, SourceState] = {}
        try:
            ledger = self.ledger(stream)
            sources = self._sources_on_disk(folder) if ledger is None else ledger.sources
            return StreamLag(stream, measure_lag(folder, self.now()), sources, self._shown(self.problem(stream)))
        except PenstockError as error:
            return StreamLag(stream, None, sources, self._shown(error.what))
        except OSError as error:
            return StreamLag(stream, None, sources, f"{os.path.basename(folder)}: {error.strerror}")

    def _shown(self, problem: str | None) -> str | None:
        """The client need not know where on this machine the directory is."""
        return None if problem is None else problem.replace(os.path.join(self.directory, ""), "")

    def _sources_on_disk(self, folder: str) -> Mapping[str, SourceState]:
        end = read_end(folder)
        if end is None:
            return {}
        known = self._read.get(folder)
        if known is None or known[0] != end:
            ledger = read_ledger(folder, end)
            known = self._read[folder] = (end, ledger.sources if ledger else {})
        return known[1]


# ---------------------------------------------------------------- the answer


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class SourceLagAnswer(_Answer):
    """How far one source of a stream was read, as its sender said with the last batches."""

    source: str = Field(description="its name; without one, the producer, or the token of a bare key")
    cursor: int | str | None = Field(description="up to where it was read")
    max_id: int | str | None = Field(description="the highest id that it has")
    lag_rows: int | None = Field(description="its rows that were not sent yet")
    lag_seconds: float | None = Field(description="since the oldest of them was written")
    batches: int = Field(description="acknowledged since the log began")
    rows: int = Field(description="rows of these batches")
    ops: int = Field(description="those of the rows that are ops")
    at: str = Field(description="when the last batch came")


class ReaderLagAnswer(_Answer):
    """What a reader of a stream's log has not delivered yet."""

    reader: str = Field(description="PIPELINE/STREAM")
    batches: int = Field(description="batches that it can read, and has not delivered")
    rows: int = Field(description="rows of these batches")
    bytes: int = Field(description="bytes of the log behind its mark")
    seconds: float = Field(description="since the oldest of these batches was acknowledged; 0: none is left")
    slice: int = Field(description="the last slice that it has delivered; 0: none")
    at: str = Field(description="when its mark last moved")


class StreamLagAnswer(_Answer):
    """One stream."""

    stream: str = Field(description="its name")
    batches: int = Field(description="batches that could be read since its log began")
    rows: int = Field(description="rows of these batches")
    bytes: int = Field(description="bytes of its log that are kept")
    problem: str | None = Field(description="why its log cannot be read; null: it can")
    sources: list[SourceLagAnswer]
    readers: list[ReaderLagAnswer]


class LagAnswer(_Answer):
    """All streams that the caller may see."""

    at: str = Field(description="when it was measured")
    streams: list[StreamLagAnswer]


def lag_router(feed: LagFeed, allows: Callable[[Request, str], bool] = lambda _request, _stream: True) -> APIRouter:
    """`allows` says whether the sender of the request may see a stream."""
    router = APIRouter()

    # Not async: it reads files, and must not hold up other requests.
    @router.get("/v1/lag", summary="How far each stream is", tags=["lag"])
    def lag(request: Request) -> LagAnswer:
        """How far the origin of each stream was read, and what each reader of its log has not delivered yet."""
        found = feed.measure(lambda stream: allows(request, stream))
        return LagAnswer(at=_time(feed.now()), streams=[_stream_answer(each) for each in found])

    return router


def _stream_answer(found: StreamLag) -> StreamLagAnswer:
    log = found.log
    return StreamLagAnswer(
        stream=found.stream,
        batches=log.batches if log else 0,
        rows=log.rows if log else 0,
        bytes=log.bytes if log else 0,
        problem=found.problem,
        sources=[_source_answer(name, state) for name, state in sorted(found.sources.items())],
        readers=[_reader_answer(each) for each in (log.readers if log else ())],
    )


def _source_answer(name: str, state: SourceState) -> SourceLagAnswer:
    meta = state.meta
    return SourceLagAnswer(
        source=name,
        cursor=meta.cursor,
        max_id=meta.max_id,
        lag_rows=meta.lag_rows,
        lag_seconds=meta.lag_seconds,
        batches=state.batches,
        rows=state.rows,
        ops=state.ops,
        at=_time(state.at),
    )


def _reader_answer(lag: ReaderLag) -> ReaderLagAnswer:
    return ReaderLagAnswer(
        reader=lag.name,
        batches=lag.batches,
        rows=lag.rows,
        bytes=lag.bytes,
        seconds=lag.seconds,
        slice=lag.number,
        at=_time(lag.at),
    )


def _time(microseconds: int) -> str:
    return stamp(datetime.fromtimestamp(microseconds / _MICROSECONDS, UTC))
