"""The progress fold: rows counted once however often they are told, and a status that is derived."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.strategies import counts, given, messages

from penstock.core.fetches import FetchCounts
from penstock.core.messages import (
    Catalog,
    CatalogStream,
    ConnectionStatus,
    Eof,
    Message,
    MessageRefused,
    MoverStatus,
    RowsRemaining,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
    WorkProgress,
)
from penstock.core.progress import Progress, apply, fold

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def catalog(*names: str, skipped: str | None = None) -> Catalog:
    streams = tuple(CatalogStream(name, "rows", skipped=skipped if name == "skipped" else None) for name in names)
    return Catalog(ts=NOON, pipeline="p", run="r", streams=streams)


def status(stream: str, status_: Status, **more: Any) -> StreamStatus:
    return StreamStatus(ts=NOON, stream=stream, status=status_, **more)


def moved(stream: str, version: int, rows: int = 10, seconds: int = 0) -> StateChanged:
    return StateChanged(
        ts=NOON + timedelta(seconds=seconds),
        stream=stream,
        version=version,
        number=version,
        slice_id="x",
        mark=f'{{"at":{version}}}',
        reason="advance",
        rows=rows,
        bytes=rows * 8,
    )


@given(st.lists(st.integers(0, 1000), max_size=12), st.data())
def test_rows_are_counted_once_for_each_version(rows: list[int], data: st.DataObject) -> None:
    history = [moved("s", version, count) for version, count in enumerate(rows, 1)]
    heard: list[Message] = []
    at = 0
    for end in (*data.draw(st.lists(st.integers(0, len(history)), max_size=3).map(sorted)), len(history)):
        # Whoever comes next tells the past again, from anywhere, and goes on from there.
        heard += history[data.draw(st.integers(0, at)) : end]
        at = end
    progress = fold(heard)
    assert progress.rows == sum(rows)
    assert progress.bytes == 8 * sum(rows)
    assert progress.slices == len(rows)


@given(st.lists(messages, max_size=8), messages)
def test_a_replayed_message_counts_nothing(before: list[Message], message: Message) -> None:
    once = fold([*before, message])
    twice = apply(once, message)
    assert (twice.rows, twice.bytes, twice.slices) == (once.rows, once.bytes, once.slices)


@given(messages)
def test_a_message_without_ts_is_refused(message: Message) -> None:
    timeless = type(message)(**vars(message) | {"ts": None})
    with pytest.raises(MessageRefused, match=f"a {message.type} message without _ts"):
        apply(Progress(), timeless)


@given(st.lists(messages, max_size=8))
def test_time_never_goes_back(said: list[Message]) -> None:
    progress = Progress()
    for message in said:
        before = progress
        progress = apply(progress, message)
        assert progress.started == (before.started or message.ts)
        assert progress.updated is not None
        assert before.updated is None or progress.updated >= before.updated
    assert progress.elapsed >= 0


@given(st.lists(messages, max_size=8))
def test_the_document_is_json(said: list[Message]) -> None:
    document = fold(said).document()
    assert json.loads(json.dumps(document))["rows"] == document["rows"]


# ---------------------------------------------------------------- the status is derived

ACTIVE = {Status.PENDING, Status.START, Status.RUNNING, Status.RANGE_COMPLETE}


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(Status)))
def test_failed_only_when_nothing_is_active_any_more(states: dict[str, Status]) -> None:
    progress = fold([catalog(*states), *(status(name, state) for name, state in states.items())])
    found = set(states.values())
    if not found or found & ACTIVE:
        assert progress.status == "running"
    else:
        assert progress.status == ("failed" if Status.ERROR in found else "complete")


def test_a_stream_that_failed_while_another_runs() -> None:
    said: list[Message] = [catalog("a", "b"), status("a", Status.ERROR, reason="broken", next_step="mend it")]
    progress = fold(said)
    assert progress.status == "running"
    assert progress.streams["a"].error == "broken"
    assert progress.streams["a"].next_step == "mend it"
    assert fold([*said, status("b", Status.RUNNING)]).status == "running"
    assert fold([*said, status("b", Status.COMPLETE)]).status == "failed"


def test_skipped_streams_do_not_keep_a_run_waiting() -> None:
    progress = fold([catalog("a", "skipped", skipped="no key"), status("a", Status.COMPLETE)])
    assert progress.status == "complete"
    assert progress.streams["skipped"].status is Status.SKIP
    assert progress.streams["skipped"].error == "no key"


def test_a_lost_connection_fails_the_run_and_is_named() -> None:
    lost = ConnectionStatus(ts=NOON, side="source", connected=False, reason="no route")
    progress = fold([catalog("a"), lost])
    assert progress.status == "failed"
    assert progress.disconnected == "source: no route"
    assert fold([ConnectionStatus(ts=NOON, side="sink", connected=True)]).disconnected is None


def test_the_last_message_has_the_last_word() -> None:
    progress = fold([catalog("a"), Eof(ts=NOON, status="limited", exit_code=0, has_more=True)])
    assert (progress.status, progress.has_more) == ("limited", True)


# ---------------------------------------------------------------- one stream


def test_a_slice_on_its_way() -> None:
    said: list[Message] = [catalog("s"), StepDone(ts=NOON, stream="s", step="intend", number=4, rows=7)]
    stream = fold(said).streams["s"]
    assert (stream.number, stream.step, stream.expected, stream.rows) == (4, "intend", 7, 0)
    said.append(StepDone(ts=NOON, stream="s", step="move", number=4, rows=6, bytes=48))
    stream = fold(said).streams["s"]
    assert (stream.step, stream.expected, stream.rows) == ("move", 7, 0)
    said.append(moved("s", 4, rows=6))
    stream = fold(said).streams["s"]
    assert (stream.step, stream.expected, stream.rows, stream.mark) == ("advance", None, 6, '{"at":4}')


def test_work_that_takes_long_is_shown_until_its_step_is_done() -> None:
    work = [WorkProgress(ts=NOON, stream="s", doing="delivering pieces", done=done, total=9) for done in (1, 2)]
    stream = fold([catalog("s"), *work]).streams["s"]
    assert (stream.doing, stream.doing_done, stream.doing_total) == ("delivering pieces", 2, 9)
    for over in (
        StepDone(ts=NOON, stream="s", step="commit", number=1),
        StreamStatus(ts=NOON, stream="s", status=Status.ERROR, reason="no"),
    ):
        stream = fold([catalog("s"), *work, over]).streams["s"]
        assert (stream.doing, stream.doing_done, stream.doing_total) == (None, None, None)


def test_what_fetching_has_cost_stays_and_the_newest_counts() -> None:
    def work(records: int | None) -> WorkProgress:
        fetched = None if records is None else FetchCounts(records=records)
        return WorkProgress(ts=NOON, stream="s", doing="fetching", fetched=fetched)

    said = [catalog("s"), work(1), work(2), work(None), StepDone(ts=NOON, stream="s", step="gather", number=1)]
    stream = fold(said).streams["s"]
    assert (stream.doing, stream.fetched) == (None, FetchCounts(records=2))
    stream = fold([*said, work(3), Eof(ts=NOON, status="interrupted", exit_code=130, has_more=True)]).streams["s"]
    assert (stream.doing, stream.fetched) == (None, FetchCounts(records=3)), "nothing is done any more"


def test_the_whole_document() -> None:
    before = RowsRemaining(
        ts=NOON, stream="s", rows=15, exact=True, held_back=2, blocker="pid 7", horizon="below 9", proven=True
    )
    progress = fold([catalog("s"), before, moved("s", 1, 10, seconds=2)])
    assert progress.elapsed == 2.0
    assert progress.document() == {
        "pipeline": "p",
        "status": "running",
        "started": "2026-01-01T12:00:00.000000Z",
        "updated": "2026-01-01T12:00:02.000000Z",
        "rows": 10,
        "bytes": 80,
        "slices": 1,
        "has_more": False,
        "streams": [
            {
                "stream": "s",
                "status": "pending",
                "rows": 10,
                "bytes": 80,
                "outcome": None,
                "slices": 1,
                "number": 1,
                "step": "advance",
                "expected": None,
                "left": 5,
                "left_exact": True,
                "held_back": 2,
                "blocker": "pid 7",
                "horizon": "below 9",
                "proven": True,
                "doing": None,
                "doing_done": None,
                "doing_total": None,
                "fetched": None,
                "mark": '{"at":1}',
                "version": 1,
                "error": None,
                "next_step": None,
            }
        ],
    }


# ---------------------------------------------------------------- what is left


def remaining(rows: int | None, exact: bool = True, **more: Any) -> RowsRemaining:
    return RowsRemaining(ts=NOON, stream="s", rows=rows, exact=exact, **more)


@given(st.lists(messages, max_size=12))
def test_what_is_left_is_never_less_than_nothing(said: list[Message]) -> None:
    for stream in fold(said).streams.values():
        assert stream.left is None or stream.left >= 0


@given(st.lists(messages, max_size=8), messages)
def test_a_stream_that_is_complete_has_nothing_left(said: list[Message], last: Message) -> None:
    for name in {message.stream for message in (*said, last) if hasattr(message, "stream") and message.stream}:
        stream = fold([*said, last, status(name, Status.COMPLETE)]).streams[name]
        assert (stream.left, stream.left_exact) == (0, True)


@given(st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.data())
def test_a_slice_is_subtracted_once_however_often_it_is_told(left: int, rows: list[int], data: st.DataObject) -> None:
    history = [moved("s", version, count) for version, count in enumerate(rows, 1)]
    heard: list[Message] = []
    for at, message in enumerate(history, 1):
        again = data.draw(st.lists(st.integers(0, at - 1), max_size=2))
        heard += [message, *(history[index] for index in again)]
    assert fold([remaining(left), *heard]).streams["s"].left == max(0, left - sum(rows))


@given(st.lists(st.integers(0, 1000), max_size=4), st.none() | counts, st.booleans())
def test_a_new_count_takes_the_place_of_the_old_one(rows: list[int], left: int | None, exact: bool) -> None:
    history = [moved("s", version, count) for version, count in enumerate(rows, 1)]
    stream = fold([remaining(10**9), *history, remaining(left, exact)]).streams["s"]
    assert (stream.left, stream.left_exact) == (left, exact)


def test_what_nobody_knows_stays_unknown() -> None:
    assert fold([catalog("s"), moved("s", 1)]).streams["s"].left is None
    assert fold([remaining(None), moved("s", 1)]).streams["s"].left is None


def test_rows_that_are_held_back_have_their_blocker_until_it_is_gone() -> None:
    said: list[Message] = [remaining(9, held_back=4, blocker="pid 7 (ann)", horizon="up to 5"), moved("s", 1)]
    stream = fold(said).streams["s"]
    assert (stream.held_back, stream.blocker, stream.horizon) == (4, "pid 7 (ann)", "up to 5")
    stream = fold([*said, remaining(9)]).streams["s"]
    assert (stream.held_back, stream.blocker, stream.horizon) == (None, None, None)


# ---------------------------------------------------------------- continuations


@given(st.lists(messages, max_size=10))
def test_a_continuation_keeps_the_counts_and_begins_anew_otherwise(said: list[Message]) -> None:
    before = fold(said)
    after = Progress.continued(json.loads(json.dumps(before.document())))
    assert (after.rows, after.bytes, after.slices) == (before.rows, before.bytes, before.slices)
    assert after.started == before.started
    assert after.ended is None
    assert after.disconnected is None
    assert not after.has_more
    for name, stream in before.streams.items():
        kept = after.streams[name]
        assert (kept.mark, kept.version) == (stream.mark, stream.version)
        assert (kept.status, kept.error, kept.number, kept.step) == (Status.PENDING, None, None, None)


def test_a_run_that_is_continued_counts_on_and_nothing_twice() -> None:
    first = fold(
        [catalog("s"), moved("s", 1), moved("s", 2), Eof(ts=NOON, status="limited", exit_code=0, has_more=True)]
    )
    second = fold([catalog("s"), moved("s", 2), moved("s", 3)], Progress.continued(first.document()))
    assert (second.rows, second.slices, second.status) == (30, 3, "running")


def test_nothing_to_continue() -> None:
    assert Progress.continued({}) == Progress()


def test_the_start_of_the_mover_ends_when_it_is_ready_or_something_went_wrong() -> None:
    begun = fold([catalog("s"), MoverStatus(ts=NOON, program="Spark")])
    assert (begun.starting, begun.starting_since) == ("Spark", NOON)
    failed = StreamStatus(ts=NOON, stream="s", status=Status.ERROR, reason="no Java")
    ended = Eof(ts=NOON, status="interrupted", exit_code=130, has_more=True)
    for message in (MoverStatus(ts=NOON, program="Spark", ready=True), failed, ended):
        assert (apply(begun, message).starting, apply(begun, message).starting_since) == (None, None)
