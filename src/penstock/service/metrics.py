"""`GET /metrics`: lag, logs and requests in the text format of Prometheus, computed at each scrape.

Labels are bounded: streams and pipelines are the operator's, and of the sources the last ones heard of are shown.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from penstock.service.lag import LagFeed, StreamLag
from penstock.wal.lag import LogLag, ReaderLag
from penstock.wal.meta import SourceState

#: sources with series of their own, the last ones heard of
MOST_SOURCES = 1000
#: streams whose requests are counted by name
MOST_STREAMS = 1000
_MICROSECONDS = 1_000_000
_BY_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "unknown",
    409: "conflict",
    413: "too_large",
    429: "busy",
    507: "full",
}
#: name without _total, help, and value
_SOURCE_COUNTERS: dict[str, tuple[str, Callable[[SourceState], float]]] = {
    "penstock_sync_batches": ("Batches acknowledged since the log began", lambda state: state.batches),
    "penstock_sync_rows": ("Rows acknowledged since the log began", lambda state: state.rows),
    "penstock_sync_ops": ("Ops acknowledged since the log began", lambda state: state.ops),
}
_LOG_GAUGES: dict[str, tuple[str, Callable[[LogLag], float]]] = {
    "penstock_sync_wal_bytes": ("Bytes of the log that are kept", lambda log: log.bytes),
    "penstock_wal_segments": ("Segments of the log that are kept", lambda log: len(log.segments)),
    "penstock_wal_damaged_records": ("Damaged records of which a copy was kept", lambda log: log.damaged),
    "penstock_wal_torn_ends": ("Ends that were cut off and kept", lambda log: log.torn),
}
_LOG_COUNTERS: dict[str, tuple[str, Callable[[LogLag], float]]] = {
    "penstock_wal_batches": ("Batches that could be read since the log began", lambda log: log.batches),
    "penstock_wal_rows": ("Rows that could be read since the log began", lambda log: log.rows),
}
_READER_GAUGES: dict[str, tuple[str, Callable[[ReaderLag], float]]] = {
    "penstock_reader_lag_batches": ("Batches that the pipeline has not delivered yet", lambda lag: lag.batches),
    "penstock_reader_lag_rows": ("Rows that the pipeline has not delivered yet", lambda lag: lag.rows),
    "penstock_reader_lag_bytes": ("Bytes of the log behind the pipeline's mark", lambda lag: lag.bytes),
    "penstock_reader_lag_seconds": ("Age of the oldest batch that it has not delivered", lambda lag: lag.seconds),
}


class RequestCounts:
    """Requests of the receiver by stream and outcome, since it was started. Threads may count at once."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._streams: set[str] = set()
        self._lock = threading.Lock()

    def count(self, stream: str | None, status: int, *, is_repeated: bool = False) -> None:
        """Count an answer. `stream` is None where the path names no stream that exists: senders make up names."""
        with self._lock:
            name = stream or ""
            if name and name not in self._streams:
                if len(self._streams) >= MOST_STREAMS:
                    name = ""
                else:
                    self._streams.add(name)
            self._counts[name, outcome_of(status, is_repeated)] += 1

    def items(self) -> list[tuple[tuple[str, str], int]]:
        with self._lock:
            return sorted(self._counts.items())


def outcome_of(status: int, is_repeated: bool = False) -> str:
    """One word for an answer."""
    if 200 <= status < 300:
        return "repeated" if is_repeated else "taken"
    return _BY_STATUS.get(status) or ("invalid" if status < 500 else "failed")


def metrics_router(
    feed: LagFeed,
    requests: RequestCounts,
    allows: Callable[[Request, str], bool] = lambda _request, _stream: True,
) -> APIRouter:
    """`allows` says whether the sender of the request may see a stream."""
    router = APIRouter()

    # Not async: it reads files, and must not hold up other requests.
    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        tags=["lag"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The metrics"}},
    )
    def metrics(request: Request) -> Response:
        """Lag, logs and requests in the text format of Prometheus."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(LagCollector(feed, requests, lambda stream: allows(request, stream)))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class LagCollector(Collector):
    """All metrics of a receiver, read from its logs when they are collected."""

    def __init__(self, feed: LagFeed, requests: RequestCounts, allows: Callable[[str], bool]) -> None:
        self._feed, self._requests, self._allows = feed, requests, allows

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        streams = self._feed.measure(self._allows)
        yield from _source_metrics(streams)
        yield from _log_metrics(streams)
        yield from _reader_metrics(streams)
        counted = CounterMetricFamily(
            "penstock_receiver_requests",
            "Requests since the receiver was started; stream is empty where none was found",
            labels=("stream", "outcome"),
        )
        for (stream, outcome), number in self._requests.items():
            if not stream or self._allows(stream):
                counted.add_metric((stream, outcome), number)
        yield counted


def _source_metrics(streams: Sequence[StreamLag]) -> Iterator[Metric]:
    found = [(each.stream, name, state) for each in streams for name, state in each.sources.items()]
    shown = sorted(sorted(found, key=lambda each: each[2].at)[-MOST_SOURCES:], key=lambda each: each[:2])
    yield _gauges(
        "penstock_sync_cursor", "Up to where the source was read; a timestamp as seconds since 1970", shown,
        lambda state: number_of(state.meta.cursor),
    )  # fmt: skip
    yield _gauges(
        "penstock_sync_max_id", "The highest id of the source", shown, lambda state: number_of(state.meta.max_id)
    )
    yield _gauges(
        "penstock_sync_lag_rows", "Rows of the source that were not sent yet, as the sender last said", shown,
        lambda state: state.meta.lag_rows,
    )  # fmt: skip
    yield _gauges(
        "penstock_sync_lag_seconds", "Age of the oldest row that was not sent yet, as the sender last said", shown,
        lambda state: state.meta.lag_seconds,
    )  # fmt: skip
    yield _gauges(
        "penstock_sync_last_batch_timestamp_seconds", "When the last batch of the source was acknowledged", shown,
        lambda state: state.at / _MICROSECONDS,
    )  # fmt: skip
    for name, (text, value) in _SOURCE_COUNTERS.items():
        family = CounterMetricFamily(name, text, labels=("stream", "source"))
        for stream, source, state in shown:
            family.add_metric((stream, source), value(state))
        yield family
    yield GaugeMetricFamily(
        "penstock_sync_sources_left_out", "Sources without series, because there are too many", len(found) - len(shown)
    )


def _gauges(
    name: str,
    text: str,
    shown: Sequence[tuple[str, str, SourceState]],
    value_of: Callable[[SourceState], float | None],
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=("stream", "source"))
    for stream, source, state in shown:
        if (value := value_of(state)) is not None:
            family.add_metric((stream, source), value)
    return family


def _log_metrics(streams: Sequence[StreamLag]) -> Iterator[Metric]:
    logs = [(each.stream, each.log) for each in streams if each.log is not None]
    for name, (text, value) in _LOG_GAUGES.items():
        family = GaugeMetricFamily(name, text, labels=("stream",))
        for stream, log in logs:
            family.add_metric((stream,), value(log))
        yield family
    for name, (text, value) in _LOG_COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=("stream",))
        for stream, log in logs:
            counter.add_metric((stream,), value(log))
        yield counter
    unreadable = GaugeMetricFamily("penstock_wal_unreadable", "1: the log cannot be read", labels=("stream",))
    for each in streams:
        unreadable.add_metric((each.stream,), float(each.problem is not None))
    yield unreadable


def _reader_metrics(streams: Sequence[StreamLag]) -> Iterator[Metric]:
    readers = [(each.stream, reader) for each in streams if each.log for reader in each.log.readers]
    for name, (text, value) in _READER_GAUGES.items():
        family = GaugeMetricFamily(name, text, labels=("stream", "pipeline"))
        for stream, lag in readers:
            family.add_metric((stream, lag.name.removesuffix(f"/{stream}")), value(lag))
        yield family


def number_of(value: int | str | None) -> float | None:
    """A cursor or id as a number: digits as they are, a timestamp as seconds since 1970; None: it is neither."""
    if value is None or isinstance(value, int):
        return value
    if value.removeprefix("-").isdecimal() and value.isascii():
        return float(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
