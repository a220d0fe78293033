"""What people see of each message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.cli.shared.render import Line, count, lines, size, span
from penstock.core.messages import (
    Catalog,
    CatalogStream,
    ConnectionStatus,
    Eof,
    Log,
    Message,
    RowsRemaining,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
)
from penstock.core.progress import Progress, apply

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOTHING_LOST = "Nothing was lost: the mark has not moved."


def shown(*messages: Message, debug: bool = False) -> list[Line]:
    """Every line of a run in which a message comes every two seconds."""
    progress = Progress()
    result: list[Line] = []
    for index, message in enumerate(messages):
        stamped = message.stamped(START + timedelta(seconds=2 * index))
        progress = apply(progress, stamped)
        result += lines(stamped, progress, pipeline="shop", describe_mark=lambda mark: f"<{mark}>", debug=debug)
    return result


def texts(*messages: Message) -> list[str]:
    return [line.text for line in shown(*messages)]


def catalog(*names: str) -> Catalog:
    return Catalog(pipeline="shop", run="r", streams=tuple(CatalogStream(name, "rows") for name in names))


def moved(number: int, rows: int = 1000, stream: str = "orders", reason: str = "advance") -> StateChanged:
    return StateChanged(
        stream=stream,
        version=number,
        number=number,
        slice_id="x",
        mark=f"m{number}",
        reason=reason,
        rows=rows,
        bytes=rows * 1536,
    )


def status(status: Status, stream: str = "orders", **more: str) -> StreamStatus:
    return StreamStatus(stream=stream, status=status, **more)  # type: ignore[arg-type]  # only texts are given


def eof(status: str = "complete", exit_code: int = 0, has_more: bool = False, **more: str) -> Eof:
    return Eof(status=status, exit_code=exit_code, has_more=has_more, **more)  # type: ignore[arg-type]  # only texts


def test_a_run_from_start_to_end() -> None:
    told = shown(
        catalog("orders", "items"),
        status(Status.START),
        StepDone(stream="orders", step="intend", number=1),
        StepDone(stream="orders", step="move", number=1, rows=1000),
        moved(1),
        status(Status.RANGE_COMPLETE),
        moved(2, rows=1),
        status(Status.COMPLETE),
        status(Status.COMPLETE, stream="items"),
        eof(),
    )
    assert told == [
        Line("shop: 2 streams: orders, items"),
        Line("shop/orders: slice 1 done: 1,000 rows, 1.5 MiB; mark: <m1>"),
        Line("shop/orders: slice 2 done: 1 row, 1.5 KiB; mark: <m2>"),
        Line("shop/orders: done: 1,001 rows in 2 slices"),
        Line("shop: complete; 1,001 rows, 1.5 MiB in 2 slices, 18.0 s, 56 rows/s"),
    ]


def test_nothing_new() -> None:
    told = texts(catalog("orders"), status(Status.COMPLETE), eof())
    assert told == ["shop: 1 stream: orders", "shop: nothing new in 1 stream, 4.0 s"]


def test_rows_that_are_held_back() -> None:
    held = RowsRemaining(stream="orders", rows=0, held_back=3, blocker="process 7, in a transaction for 9 s")
    told = texts(catalog("orders"), held, status(Status.COMPLETE), eof())
    assert told == [
        "shop: 1 stream: orders",
        "shop/orders: held back: 3 rows, by process 7, in a transaction for 9 s",
        "shop: nothing that can be read yet in 1 stream, 6.0 s",
    ]
    told = texts(catalog("orders"), moved(1), held, status(Status.COMPLETE), eof())
    assert told[2] == (
        "shop/orders: done: 1,000 rows in 1 slice; held back: 3 rows, by process 7, in a transaction for 9 s"
    )


def test_many_streams_are_not_all_listed_and_skipped_ones_say_why() -> None:
    skipped = CatalogStream("view", "rows", skipped="no primary key")
    many = catalog(*(f"t{n}" for n in range(200)))
    message = Catalog(pipeline="shop", run="r", streams=(*many.streams, skipped))
    assert texts(message) == [
        "shop: 200 streams: t0, t1, t2, t3, t4, t5, t6, t7 and 192 more",
        "shop/view: skipped: no primary key",
    ]


def test_a_limit() -> None:
    told = texts(catalog("orders"), moved(1), eof("limited", has_more=True, reason="stopped at max_rows 1000"))
    assert told[-1] == (
        "shop: stopped at max_rows 1000; 1,000 rows, 1.5 MiB in 1 slice, 4.0 s, 250 rows/s; "
        "more to do: run the same command again"
    )


def test_a_resumed_slice() -> None:
    step = StepDone(stream="orders", step="intend", number=3, resumed=True)
    assert texts(step) == ["shop/orders: finishing slice 3, begun by an earlier run"]


def test_a_failed_stream() -> None:
    told = shown(
        catalog("orders", "items"),
        status(Status.ERROR, reason="no column 'x'", next_step="name another"),
        moved(1, stream="items"),
        eof("failed", 1, has_more=True, reason="failed: orders"),
    )
    assert told[1] == Line(f"error: shop/orders: no column 'x'\n{NOTHING_LOST}\nNext: name another", error=True)
    assert told[-2:] == [
        Line("shop/orders: failed: no column 'x'", recap=True),
        Line("shop: failed: 1 of 2 streams (orders); 1,000 rows, 1.5 MiB in 1 slice, 6.0 s, 167 rows/s"),
    ]


def test_the_end_names_skipped_streams_and_their_reasons() -> None:
    """What was said at the start may lie hours back."""
    view = CatalogStream("view", "rows", skipped="status 403")
    message = Catalog(pipeline="shop", run="r", streams=(*catalog("orders").streams, view))
    assert texts(message, moved(1), eof())[-2:] == [
        "shop/view: skipped: status 403",
        "shop: complete; skipped: view; 1,000 rows, 1.5 MiB in 1 slice, 4.0 s, 250 rows/s",
    ]
    assert texts(message, eof())[-1].startswith("shop: nothing new in 1 stream, ")
    assert texts(message, eof())[-1].endswith("; skipped: view")


def test_a_failed_connection_is_told_once() -> None:
    told = shown(
        ConnectionStatus(side="source", connected=False, reason="no route", next_step="check the port"),
        eof("failed", 3, has_more=True, reason="no route", next_step="check the port"),
    )
    text = f"error: shop: source: no route\n{NOTHING_LOST}\nNext: check the port"
    assert told == [Line(text, error=True)]


def test_a_pipeline_that_another_process_holds() -> None:
    told = shown(eof("failed", 4, reason="held by process 7", next_step="wait"))
    assert told == [Line(f"error: shop: held by process 7\n{NOTHING_LOST}\nNext: wait", error=True)]


def test_a_lost_lease() -> None:
    told = shown(catalog("orders"), eof("lost", 4, reason="replaced", safe="Nothing twice.", next_step="nothing"))
    assert told[-1] == Line("error: shop: replaced\nNothing twice.\nNext: nothing", error=True)


def test_a_signal() -> None:
    told = texts(catalog("orders"), eof("interrupted", 130, has_more=True, reason="stopped by signal 2"))
    assert told[-1] == (
        "shop: stopped by signal 2; 0 rows, 0 B in 0 slices, 2.0 s; more to do: run the same command again"
    )


def test_reset_rewind_undo_and_recover() -> None:
    nothing = StateChanged(stream="a", version=9, number=0, slice_id="", mark=None, reason="recover")
    assert texts(moved(1, rows=0, reason="begin")) == [
        "shop/orders: starts here; mark: <m1>; earlier rows are not delivered"
    ]
    assert texts(moved(2, rows=0, reason="rewind")) == [
        "shop/orders: rewound; mark: <m2>; the next run continues from there"
    ]
    assert texts(moved(2, rows=0, reason="undo")) == [
        "shop/orders: undone; mark: <m2>; the next run continues from there"
    ]
    assert texts(moved(3, rows=0, reason="reset"), moved(4, rows=0, reason="recover"), nothing) == [
        "shop/orders: reset: the next run reads the stream from the beginning",
        "shop/orders: recovered: the sink holds slice 4; mark: <m4>",
        "shop/a: recovered: the sink holds no slice, so the next run starts from the beginning",
    ]


def test_logs() -> None:
    info, debug = Log(level="info", text="i"), Log(level="debug", text="trace", stream="orders")
    warning = Log(level="warning", text="w", stream="orders")
    assert shown(info, debug, warning) == [
        Line("shop: i"),
        Line("warning: shop/orders: w", error=True),
    ]
    assert shown(debug, debug=True) == [Line("shop/orders: trace", error=True)]


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 40, "5.0 TiB"), (9 << 50, "9,216.0 TiB")],
)
def test_sizes(number: int, words: str) -> None:
    assert size(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (125, "2 min 5 s"), (11220, "3 h 7 min"), (187200, "2 d 4 h")],
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_counts() -> None:
    assert [count(n, "row") for n in (0, 1, 2, 1234567)] == ["0 rows", "1 row", "2 rows", "1,234,567 rows"]
