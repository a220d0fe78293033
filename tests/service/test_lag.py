"""Lag and metrics of a receiver: computed from its logs, right after a restart, and each documented metric is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client.parser import text_string_to_metric_families
from tests.docs.pages import TOP, first_cells, section
from tests.wal.test_log import Clock, chunk

from penstock.service import metrics
from penstock.service.lag import LagFeed, lag_router
from penstock.service.metrics import RequestCounts, metrics_router, number_of, outcome_of
from penstock.wal import readers
from penstock.wal.batches import Batch
from penstock.wal.folders import folder_of
from penstock.wal.ledger import Bare, Take
from penstock.wal.log import Log, LogOptions
from penstock.wal.meta import Meta
from penstock.wal.opening import open_log

PAGE = TOP / "docs" / "lag.md"
SHOP = Meta("shop", "2026-11-19T12:00:00Z", 900, 7, 2500)
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Receiver:
    """The logs of a receiver, and what it answers."""

    directory: str
    clock: Clock = field(default_factory=Clock)
    logs: dict[str, Log] = field(default_factory=dict)
    requests: RequestCounts = field(default_factory=RequestCounts)
    allows: Callable[[Request, str], bool] = lambda _request, _stream: True

    def __post_init__(self) -> None:
        self.feed = LagFeed(self.directory, lambda: self.clock.at, self._ledger)
        app = FastAPI()
        app.include_router(lag_router(self.feed, lambda request, stream: self.allows(request, stream)))
        app.include_router(metrics_router(self.feed, self.requests, lambda request, name: self.allows(request, name)))
        self.app = app
        self.headers: dict[str, str] = {}

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as client:
                return await client.get(path, headers=self.headers)

        return asyncio.run(ask())

    def _ledger(self, stream: str) -> Any:
        return self.logs[stream].ledger if stream in self.logs else None

    def send(self, stream: str, *batches: Batch) -> None:
        if stream not in self.logs:
            options = LogOptions(segment_bytes=300)
            self.logs[stream] = open_log(folder_of(self.directory, stream), options, self.clock)
        for batch in batches:
            assert self.logs[stream].append([batch]) == [Take()]

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def lag(self) -> dict[str, Any]:
        answer = self.get("/v1/lag")
        assert answer.status_code == 200
        return {each["stream"]: each for each in answer.json()["streams"]}

    def samples(self) -> Samples:
        answer = self.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(str(tmp_path))
    receiver.send(
        "orders",
        Batch(Bare("token", "a", "d", 3), 3, bytes(200), meta=SHOP),
        Batch(Bare("token", "b", "d", 5), 5, bytes(200), kind="ops", meta=Meta("shop", max_id=950, lag_rows=2)),
        chunk(1, 1, 2),
    )
    receiver.send("Events & co", Batch(Bare("curl", "a", "d", 1), 1, b"x"))
    yield receiver
    receiver.close()


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def register(receiver: Receiver, name: str, reader: readers.Reader) -> None:
    folder = folder_of(receiver.directory, "orders")
    readers.register(folder, name, receiver.clock.at)
    readers.raise_mark(folder, name, reader)


def test_the_lag_of_each_source(receiver: Receiver) -> None:
    found = receiver.lag()
    assert list(found) == ["Events & co", "orders"]
    orders = found["orders"]
    assert (orders["batches"], orders["rows"], orders["problem"], orders["readers"]) == (2, 8, None, [])
    folder = folder_of(receiver.directory, "orders")
    assert orders["bytes"] == sum(each.stat().st_size for each in Path(folder).glob("*.wal"))
    by_name = {each.pop("source"): each for each in orders["sources"]}
    at = by_name["shop"].pop("at")
    assert at.startswith("2023-11-14T22:13:")
    assert by_name["shop"] == {
        "cursor": "2026-11-19T12:00:00Z",
        "max_id": 950,
        "lag_rows": 2,
        "lag_seconds": 2.5,
        "batches": 3,  # with the chunk, which cannot be read yet: its producer has the same name
        "rows": 10,
        "ops": 5,
    }
    [curl] = found["Events & co"]["sources"]
    assert (curl["source"], curl["cursor"], curl["lag_rows"], curl["rows"]) == ("curl", None, None, 1)


def test_the_lag_of_each_reader(receiver: Receiver) -> None:
    register(receiver, "lake/orders", readers.Reader(1, 3, receiver.clock.at, batches=1, rows=3))
    receiver.clock.at += 60_000_000
    [reader] = receiver.lag()["orders"]["readers"]
    assert (reader["reader"], reader["batches"], reader["rows"], reader["slice"]) == ("lake/orders", 1, 5, 3)
    assert reader["seconds"] > 60
    assert reader["bytes"] > 400
    samples = receiver.samples()
    labels = {"stream": "orders", "pipeline": "lake"}
    assert samples[key("penstock_reader_lag_batches", **labels)] == 1
    assert samples[key("penstock_reader_lag_rows", **labels)] == 5
    assert samples[key("penstock_reader_lag_bytes", **labels)] == reader["bytes"]
    assert samples[key("penstock_reader_lag_seconds", **labels)] == reader["seconds"]


def test_metrics_say_the_same(receiver: Receiver) -> None:
    samples = receiver.samples()
    shop = {"stream": "orders", "source": "shop"}
    assert samples[key("penstock_sync_cursor", **shop)] == 1_795_089_600
    assert samples[key("penstock_sync_max_id", **shop)] == 950
    assert samples[key("penstock_sync_lag_rows", **shop)] == 2
    assert samples[key("penstock_sync_lag_seconds", **shop)] == 2.5
    assert samples[key("penstock_sync_ops_total", **shop)] == 5
    assert samples[key("penstock_sync_rows_total", **shop)] == 10
    assert samples[key("penstock_sync_batches_total", **shop)] == 3
    last = receiver.logs["orders"].ledger.sources["shop"].at / 1_000_000
    assert samples[key("penstock_sync_last_batch_timestamp_seconds", **shop)] == last
    assert key("penstock_sync_cursor", stream="Events & co", source="curl") not in samples
    orders = receiver.lag()["orders"]
    assert samples[key("penstock_sync_wal_bytes", stream="orders")] == orders["bytes"]
    assert samples[key("penstock_wal_segments", stream="orders")] == 3
    assert samples[key("penstock_wal_rows_total", stream="orders")] == 8
    assert samples[key("penstock_wal_batches_total", stream="orders")] == 2
    assert samples[key("penstock_wal_unreadable", stream="orders")] == 0
    assert samples[key("penstock_sync_sources_left_out")] == 0


def test_nothing_is_forgotten_by_a_restart(receiver: Receiver) -> None:
    before = (receiver.lag(), receiver.samples())
    receiver.close()  # the logs are read from disk now
    assert (receiver.lag(), receiver.samples()) == before
    receiver.send("orders", chunk(1, 2, 2))
    receiver.logs["orders"].close()
    del receiver.logs["orders"]
    assert {each["source"] for each in receiver.lag()["orders"]["sources"]} == {"shop"} | {"shop"}
    assert receiver.lag()["orders"]["batches"] == 4


def test_a_stream_that_cannot_be_read_holds_up_no_other(receiver: Receiver) -> None:
    folder = folder_of(receiver.directory, "orders")
    Path(folder, "readers.json").write_text("{}")
    found = receiver.lag()
    assert "orders/readers.json cannot be read" in found["orders"]["problem"]
    assert receiver.directory not in found["orders"]["problem"]
    assert found["Events & co"]["problem"] is None
    samples = receiver.samples()
    assert samples[key("penstock_wal_unreadable", stream="orders")] == 1
    assert samples[key("penstock_wal_unreadable", stream="Events & co")] == 0
    assert samples[key("penstock_sync_ops_total", stream="orders", source="shop")] == 5


def test_who_may_see_one_stream_sees_no_other(receiver: Receiver) -> None:
    receiver.requests.count("orders", 200)
    receiver.requests.count("Events & co", 200)
    receiver.requests.count(None, 404)
    receiver.allows = lambda request, stream: stream == request.headers["x-stream"]
    receiver.headers["x-stream"] = "orders"
    assert list(receiver.lag()) == ["orders"]
    streams = {dict(labels).get("stream") for _, labels in receiver.samples()}
    assert streams == {"orders", "", None}


def test_torn_ends_and_damaged_records_are_counted(receiver: Receiver) -> None:
    folder = folder_of(receiver.directory, "orders")
    Path(folder, "000000000001.torn-99").write_bytes(b"x")
    Path(folder, "000000000001.damaged-50").write_bytes(b"x")
    Path(folder, "000000000001.damaged-70").write_bytes(b"x")
    samples = receiver.samples()
    assert samples[key("penstock_wal_torn_ends", stream="orders")] == 1
    assert samples[key("penstock_wal_damaged_records", stream="orders")] == 2


def test_requests_are_counted_by_outcome(receiver: Receiver) -> None:
    for status, repeated in ((200, False), (200, True), (200, True), (507, False)):
        receiver.requests.count("orders", status, is_repeated=repeated)
    receiver.requests.count(None, 404)
    samples = receiver.samples()
    name = "penstock_receiver_requests_total"
    assert samples[key(name, stream="orders", outcome="taken")] == 1
    assert samples[key(name, stream="orders", outcome="repeated")] == 2
    assert samples[key(name, stream="orders", outcome="full")] == 1
    assert samples[key(name, stream="", outcome="unknown")] == 1


def test_series_are_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_SOURCES", 2)
    monkeypatch.setattr(metrics, "MOST_STREAMS", 3)
    late = [Batch(Bare(f"t{number}", "a", "d", 1), 1, b"x") for number in range(4)]
    receiver.send("orders", *late)
    for number in range(9):
        receiver.requests.count(f"s{number}", 200)
    samples = receiver.samples()
    shown = {dict(labels)["source"] for name, labels in samples if name == "penstock_sync_rows_total"}
    assert shown == {"t2", "t3"}
    assert samples[key("penstock_sync_sources_left_out")] == 4
    counted = {dict(labels)["stream"]: n for (name, labels), n in samples.items() if "requests_total" in name}
    assert counted == {"s0": 1, "s1": 1, "s2": 1, "": 6}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (None, None),
        (12, 12),
        ("-12", -12),
        ("0007", 7),
        ("2026-11-19", 1_795_046_400),
        ("2026-11-19T12:00:00+02:00", 1_795_082_400),
        ("abc", None),
        ("٣", None),
        ("", None),
    ],
)
def test_cursors_as_numbers(value: int | str | None, number: float | None) -> None:
    assert number_of(value) == number


def test_every_metric_is_documented_and_every_documented_metric_is_there(receiver: Receiver) -> None:
    register(receiver, "lake/orders", readers.Reader(1, 3, 1))
    receiver.requests.count("orders", 200)
    documented = [cell.strip("`") for cell in first_cells(section(PAGE, "Metrics")) if cell.startswith("`penstock_")]
    assert sorted(documented) == sorted({name for name, _ in receiver.samples()})
    labels = {name: sorted(dict(found)) for name, found in receiver.samples()}
    for name, names in labels.items():
        [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
        assert sorted(filter(None, row.split("|")[2].strip().split(", "))) == names, name


def test_every_outcome_is_documented() -> None:
    statuses = [*range(200, 209), *range(400, 430), 500, 503, 507]
    found = {outcome_of(status) for status in statuses} | {outcome_of(200, True)}
    cells = [cell for cell in first_cells(section(PAGE, "Metrics")) if not cell.startswith("`penstock_")]
    assert {word.strip("`") for cell in cells for word in cell.split(", ")} == found


def test_a_directory_without_streams(tmp_path: Path) -> None:
    receiver = Receiver(str(tmp_path / "gone"))
    assert receiver.lag() == {}
    assert receiver.samples()[key("penstock_sync_sources_left_out")] == 0
    os.makedirs(folder_of(receiver.directory, "orders"))
    assert receiver.lag()["orders"]["batches"] == 0
