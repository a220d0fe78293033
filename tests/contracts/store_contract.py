"""What every Store must keep, as tests. Join by subclassing and giving the fixture `open_store`.

Every call of `open_store` opens another handle on one and the same store, empty at first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.core.content import Column, Content
from penstock.core.history import HistoryLimits
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Outcome
from penstock.core.reports import DAYS_KEPT, WHOLE_RUN, DayOfRuns, Failure, LastLook, Problem, RunReport
from penstock.core.slices import Kind, Receipt, Seal, Slice, following
from penstock.core.types import Plain
from penstock.errors import LeaseLost, PenstockError, PipelineHeld, StreamFailed
from penstock.ports import Lease, Owner, Store, StreamState

#: with microseconds, which must come back
NOW = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)
CONTENT = Content((Column("id", Plain.INT64), Column("na\u00efve", Plain.STRING)), identity={"table": "public.orders"})
Open = Callable[..., Store]


def owner(name: str) -> Owner:
    return Owner(token=name, host=f"host-{name}", pid=4242, boot="boot", started="1")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def never(_: Owner) -> bool:
    return False


def take(store: Store, name: str = "a", *, now: datetime = NOW, pipeline: str = "shop") -> Lease:
    return store.acquire(pipeline, owner(name), now=now, ttl=30, gone=never)


def after(last: Position | None, upto: int | None, *, kind: Kind = Kind.ROWS, stream: str = "orders") -> Slice:
    mark = None if upto is None else Mark.of({"key": str(upto)})
    plan = {"parts": 3}
    return following(last, pipeline="shop", stream=stream, upto=mark, content=CONTENT, kind=kind, plan=plan)


def sealed(slice_: Slice, attempt: str = "a1") -> Seal:
    receipts = (
        Receipt(0, attempt, 2, 2, 16, "schema", '{"digest":"na\u00efve"}'),
        Receipt(1, attempt, 1, 1, 8, "schema", "{}", nulled=1, absent=("gone",)),
    )
    return Seal(slice_.id, attempt, receipts)


def deliver(
    store: Store,
    lease: Lease,
    slice_: Slice,
    *,
    rows: int = 10,
    now: datetime = NOW,
    outcome: Outcome | None = None,
) -> Position:
    store.intend(lease, slice_, now=now, run="r")
    store.advance(lease, slice_, rows=rows, bytes_=rows * 100, now=now, run="r", outcome=outcome)
    return slice_.position


def end_run(
    store: Store,
    lease: Lease,
    run: str,
    *,
    status: str = "complete",
    has_more: bool = False,
    totals: str = "{}",
    streams: Mapping[str, str | None] | None = None,
) -> None:
    store.end_run(lease, run, now=later(1), status=status, has_more=has_more, totals=totals, streams=streams or {})


class StoreContract:
    @pytest.fixture
    def open_store(self) -> Open:
        """Open another handle on the store of this test; it takes `limits`."""
        raise NotImplementedError

    @pytest.fixture
    def reopen(self, open_store: Open) -> Iterator[Open]:
        """The same, closed when the test ends."""
        handles: list[Store] = []

        def opened() -> Store:
            handles.append(open_store())
            return handles[-1]

        yield opened
        for handle in handles:
            handle.close()

    @pytest.fixture
    def store(self, reopen: Open) -> Store:
        return reopen()

    # ------------------------------------------------------------ the lease

    def test_a_free_pipeline_is_taken(self, store: Store, reopen: Open) -> None:
        assert store.holder("shop") is None
        lease = take(store)
        holder = reopen().holder("shop")
        assert holder is not None
        assert (holder.lease, holder.heartbeat, holder.expires) == (lease, NOW, later(30))
        assert lease == Lease("shop", owner("a"), 1)
        assert take(store, "b", pipeline="other").epoch == 1

    def test_a_held_pipeline_is_refused_and_the_holder_named(self, store: Store, reopen: Open) -> None:
        take(store)
        with pytest.raises(PipelineHeld) as held:
            take(reopen(), "b", now=later(29.9))
        assert str(held.value) == (
            "shop: process 4242 on host-a holds the pipeline; its last heartbeat was 30 s ago and its lease "
            "ends at 2026-03-01 12:00:30 UTC\n"
            "Nothing was changed.\n"
            "Next: wait for it to end, or stop that process; if it is dead the lease expires at "
            "2026-03-01 12:00:30 UTC"
        )

    def test_an_expired_lease_is_taken_over(self, store: Store) -> None:
        assert [take(store).epoch, take(store, "b", now=later(30)).epoch] == [1, 2]

    def test_the_lease_of_a_process_that_is_gone_is_taken_over(self, store: Store) -> None:
        take(store)
        asked: list[Owner] = []

        def gone(who: Owner) -> bool:
            asked.append(who)
            return True

        lease = store.acquire("shop", owner("b"), now=NOW, ttl=30, gone=gone)
        assert asked == [owner("a")]
        assert lease.epoch == 2

    def test_ones_own_lease_is_taken_again(self, store: Store) -> None:
        first = take(store)
        assert take(store, now=later(1)).epoch == first.epoch + 1
        with pytest.raises(LeaseLost):
            store.heartbeat(first, now=later(2), ttl=30)

    def test_the_epoch_grows_across_releases(self, store: Store, reopen: Open) -> None:
        for epoch, name in enumerate("aba", start=1):
            store.release(lease := take(store, name))
            assert (lease.epoch, store.holder("shop")) == (epoch, None)
        assert take(reopen(), "c").epoch == 4

    def test_a_heartbeat_keeps_the_lease(self, store: Store) -> None:
        lease = take(store)
        store.heartbeat(lease, now=later(29), ttl=30)
        with pytest.raises(PipelineHeld):
            take(store, "b", now=later(58))
        take(store, "b", now=later(59))
        with pytest.raises(LeaseLost) as lost:
            store.heartbeat(lease, now=later(60), ttl=30)
        assert str(lost.value) == (
            "shop: this process no longer holds the pipeline (its epoch was 1): process 4242 on host-b holds "
            "it now (epoch 2)\n"
            "Nothing was lost, and nothing was written after the lease was gone.\n"
            "Next: nothing to repair: the next run, or the process that holds it now, continues from the mark"
        )

    def test_a_release_of_what_is_not_ours_is_quiet(self, store: Store) -> None:
        zombie = take(store)
        heir = take(store, "b", now=later(31))
        store.release(zombie)
        store.heartbeat(heir, now=later(32), ttl=30)
        store.release(heir)
        store.release(heir)

    def test_of_many_who_acquire_at_once_one_wins(self, store: Store, reopen: Open) -> None:
        won = _race(lambda i: take(handles[i], f"t{i}"), handles := [reopen() for _ in range(6)])
        assert sorted(type(result).__name__ for result in won) == ["Lease"] + ["PipelineHeld"] * 5

    @pytest.mark.parametrize("left", ["taken over", "released"])
    def test_a_zombie_writes_nothing(self, store: Store, left: str) -> None:
        zombie = take(store)
        at = deliver(store, zombie, after(None, 1))
        store.intend(zombie, open_ := after(at, 2), now=NOW, run="r")
        store.start_run(zombie, "r", now=NOW)
        if left == "released":
            store.release(zombie)
        else:
            take(store, "b", now=later(31))
        before = (store.streams("shop"), store.history("shop", "orders"), store.runs("shop"))
        writes: list[Callable[[], object]] = [
            lambda: store.intend(zombie, after(None, 1, stream="new"), now=NOW, run="r"),
            lambda: store.seal(zombie, open_, sealed(open_), now=NOW),
            lambda: store.advance(zombie, open_, rows=1, bytes_=1, now=NOW, run="r"),
            lambda: store.stop(zombie, "orders", "no", now=NOW),
            lambda: store.request_reset(zombie, "orders", now=NOW),
            lambda: store.rebuild(zombie, "orders", None, now=NOW, run=None),
            lambda: store.start_run(zombie, "r2", now=NOW),
            lambda: store.save_progress(zombie, "r", totals='{"rows":9}', streams={"orders": "{}"}),
            lambda: store.heartbeat(zombie, now=NOW, ttl=30),
        ]
        for write in writes:
            with pytest.raises(LeaseLost):
                write()
        end_run(store, zombie, "r", streams={"orders": "{}"})
        assert (store.streams("shop"), store.history("shop", "orders"), store.runs("shop")) == before

    # ------------------------------------------------------------ the gate

    def test_an_unknown_stream_stands_at_the_beginning(self, store: Store) -> None:
        assert store.state("shop", "orders") == StreamState()
        assert store.streams("shop") == {}
        assert list(store.history("shop", "orders")) == []

    def test_an_intent_comes_back_exactly(self, store: Store, reopen: Open) -> None:
        slice_ = after(None, 1)
        store.intend(take(store), slice_, now=NOW, run="r")
        state = reopen().state("shop", "orders")
        assert state == StreamState(intent=slice_)
        assert state.intent is not None
        assert (state.intent.id, state.intent.plan) == (slice_.id, '{"parts":3}')

    def test_advance_moves_the_mark(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        first = deliver(store, lease, after(None, 1), rows=10)
        second = after(first, 2)
        store.intend(lease, second, now=NOW, run="r")
        assert store.advance(lease, second, rows=5, bytes_=500, now=later(1), run="r") == 2
        expected = StreamState(last=second.position, version=2, rows=15, bytes=1500, last_rows=5, moved_at=later(1))
        other = reopen()
        assert other.state("shop", "orders") == expected
        assert other.streams("shop") == {"orders": expected}
        assert other.streams("other") == {}

    def test_an_intent_only_after_its_predecessor(self, store: Store) -> None:
        lease = take(store)
        at = deliver(store, lease, after(None, 1))
        follower = after(at, 2)
        wrong = [
            after(None, 1),
            replace(follower, previous="0" * 64),
            replace(follower, number=3),
            replace(follower, after=Mark.of({"key": "0"})),
            replace(follower, after=None),
        ]
        for slice_ in wrong:
            with pytest.raises(StreamFailed):
                store.intend(lease, slice_, now=NOW, run="r")
        with pytest.raises(StreamFailed):
            store.intend(lease, replace(follower, stream="new"), now=NOW, run="r")
        assert store.streams("shop").keys() == {"orders"}
        assert store.state("shop", "orders").intent is None

    def test_a_second_intent_is_refused(self, store: Store) -> None:
        lease = take(store)
        store.intend(lease, first := after(None, 1), now=NOW, run="r")
        second = after(None, 2)
        for slice_ in (first, second):
            with pytest.raises(StreamFailed) as refused:
                store.intend(lease, slice_, now=NOW, run="r")
        assert str(refused.value) == (
            f"shop/orders: the store has no slice done and slice 1 ({first.id[:12]}) is open, so slice 1 "
            f"({second.id[:12]}) cannot be intended: the store was changed or restored while this run was "
            "using it\n"
            "Nothing was lost: the mark has not moved.\n"
            "Next: run the pipeline again; it first compares the store with the sink"
        )
        assert store.state("shop", "orders").intent == first

    def test_only_the_open_intent_advances_and_once(self, store: Store) -> None:
        lease = take(store)
        slice_ = after(None, 1)
        with pytest.raises(StreamFailed):
            store.advance(lease, slice_, rows=1, bytes_=1, now=NOW, run="r")
        store.intend(lease, slice_, now=NOW, run="r")
        with pytest.raises(StreamFailed):
            store.advance(lease, after(None, 2), rows=1, bytes_=1, now=NOW, run="r")
        store.advance(lease, slice_, rows=1, bytes_=1, now=NOW, run="r")
        with pytest.raises(StreamFailed):
            store.advance(lease, slice_, rows=1, bytes_=1, now=NOW, run="r")
        state = store.state("shop", "orders")
        assert (state.version, state.rows, len(store.history("shop", "orders"))) == (1, 1, 1)

    def test_whoever_takes_over_finishes_the_open_slice(self, store: Store, reopen: Open) -> None:
        store.intend(take(store), after(None, 1), now=NOW, run="r")
        heir = reopen()
        lease = take(heir, "b", now=later(31))
        intent = heir.state("shop", "orders").intent
        assert intent is not None
        assert heir.advance(lease, intent, rows=1, bytes_=1, now=later(32), run="r2") == 1

    def test_of_many_who_intend_at_once_one_wins(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        handles, proposals = [reopen() for _ in range(6)], [after(None, i) for i in range(6)]
        won = _race(lambda i: handles[i].intend(lease, proposals[i], now=NOW, run="r"), handles)
        assert sum(result is None for result in won) == 1
        assert sum(isinstance(result, StreamFailed) for result in won) == 5
        assert store.state("shop", "orders").intent == proposals[won.index(None)]

    def test_a_slice_without_rows_leaves_last_rows_but_a_refresh_does_not(self, store: Store) -> None:
        lease = take(store)
        at = deliver(store, lease, after(None, 1), rows=7)
        at = deliver(store, lease, after(at, 2), rows=0)
        assert store.state("shop", "orders").last_rows == 7
        deliver(store, lease, after(at, 3, kind=Kind.REFRESH), rows=0)
        assert store.state("shop", "orders").last_rows == 0

    def test_what_became_of_rows_is_summed_and_kept_by_change(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        first = deliver(store, lease, after(None, 1), rows=9, outcome=Outcome(created=7, folded=2))
        second = deliver(store, lease, after(first, 2), rows=5, outcome=Outcome(created=1, updated=3, stale=1))
        total = Outcome(created=8, updated=3, stale=1, folded=2)
        assert reopen().state("shop", "orders").outcome == total
        assert reopen().streams("shop")["orders"].outcome == total
        # Neither a slice that leads back nor a sink that does not look at rows takes anything away.
        third = deliver(store, lease, after(second, 1, kind=Kind.UNDO), rows=0, outcome=Outcome())
        fourth = deliver(store, lease, after(third, 3), rows=1)
        assert store.state("shop", "orders").outcome == total
        deliver(store, lease, after(fourth, None, kind=Kind.RESET), rows=0, outcome=Outcome())
        assert reopen().state("shop", "orders").outcome is None
        assert [change.outcome for change in reopen().history("shop", "orders")] == [
            Outcome(),
            None,
            Outcome(),
            Outcome(created=1, updated=3, stale=1),
            Outcome(created=7, folded=2),
        ]

    @pytest.mark.parametrize("held", [False, True])
    def test_rebuild_keeps_what_became_of_rows_as_it_keeps_their_number(self, store: Store, held: bool) -> None:
        lease = take(store)
        at = deliver(store, lease, after(None, 1), rows=3, outcome=Outcome(created=3))
        store.rebuild(lease, "orders", at if held else None, now=NOW, run=None)
        state = store.state("shop", "orders")
        assert (state.rows, state.outcome) == ((3, Outcome(created=3)) if held else (0, None))
        assert store.history("shop", "orders")[0].outcome is None
        deliver(store, lease, after(state.last, 2), rows=1, outcome=Outcome(updated=1))
        assert store.state("shop", "orders").outcome == Outcome(created=3 * held, updated=1)

    # ------------------------------------------------------------ stop, reset, rebuild

    def test_a_stop_is_recorded_and_cleared_by_hand_or_by_advance(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        store.stop(lease, "orders", None, now=NOW)
        assert store.streams("shop") == {}
        store.stop(lease, "orders", "sink is behind", now=NOW)
        assert reopen().state("shop", "orders") == StreamState(stopped="sink is behind")
        store.stop(lease, "orders", None, now=NOW)
        assert store.state("shop", "orders") == StreamState()
        store.stop(lease, "orders", "no", now=NOW)
        deliver(store, lease, after(None, 1))
        assert store.state("shop", "orders").stopped is None

    def test_where_a_search_for_deletes_goes_on_is_kept_until_it_is_done(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        store.save_compared(lease, "orders", '["7"]')
        assert store.streams("shop") == {}, "a stream without a slice has nothing to search"
        deliver(store, lease, after(None, 1))
        store.save_compared(lease, "orders", '["7"]')
        deliver(store, lease, after(store.state("shop", "orders").last, 2))
        assert reopen().state("shop", "orders").compared == '["7"]'
        store.save_compared(lease, "orders", None)
        assert store.state("shop", "orders").compared is None
        take(store, "b", now=later(31))
        with pytest.raises(LeaseLost):
            store.save_compared(lease, "orders", '["8"]')

    def test_a_reset_waits_for_the_open_slice_and_starts_from_zero(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        store.intend(lease, slice_ := after(None, 1), now=NOW, run="r")
        store.request_reset(lease, "orders", now=NOW)
        assert reopen().state("shop", "orders") == StreamState(intent=slice_, reset_wanted=True)
        store.advance(lease, slice_, rows=10, bytes_=1000, now=NOW, run="r")
        assert store.state("shop", "orders").reset_wanted
        reset = after(slice_.position, None, kind=Kind.RESET)
        at = deliver(store, lease, reset, rows=0, now=later(1))
        assert store.state("shop", "orders") == StreamState(last=at, version=2, last_rows=10, moved_at=later(1))
        assert at.mark is None
        assert deliver(store, lease, after(at, 1)).number == 3

    @pytest.mark.parametrize("kind", [Kind.REWIND, Kind.UNDO])
    def test_a_rewind_leads_back_and_keeps_what_was_counted(self, store: Store, reopen: Open, kind: Kind) -> None:
        lease = take(store)
        first = deliver(store, lease, after(None, 1))
        second = deliver(store, lease, after(first, 2))
        rewind = after(second, 1, kind=kind)
        store.intend(lease, rewind, now=NOW, run="r")
        assert reopen().state("shop", "orders").intent == rewind
        assert store.advance(lease, rewind, rows=0, bytes_=0, now=later(1), run="r") == 3
        assert reopen().state("shop", "orders") == StreamState(
            last=rewind.position, version=3, rows=20, bytes=2000, last_rows=10, moved_at=later(1)
        )
        assert rewind.upto == first.mark
        (newest, *_, oldest) = store.history("shop", "orders")
        assert (newest.reason, newest.position, newest.rows) == (kind.value, rewind.position, 0)
        # An undo goes back by what is kept here: the mark, what it was made of, and the rows it brought.
        assert (oldest.reason, oldest.position, oldest.rows) == ("advance", first, 10)
        again = deliver(store, lease, after(rewind.position, 2))
        assert (again.number, again.mark) == (4, second.mark)
        assert store.state("shop", "orders").rows == 30

    @pytest.mark.parametrize("number", [0, 1, 5])
    def test_rebuild_sets_the_mark_and_drops_intent_and_stop(self, store: Store, reopen: Open, number: int) -> None:
        lease = take(store)
        at = first = deliver(store, lease, after(None, 1))
        at = deliver(store, lease, after(at, 2))
        store.intend(lease, after(at, 3), now=NOW, run="r")
        store.stop(lease, "orders", "no", now=NOW)
        sinks = {0: None, 1: first, 5: Position(5, "5" * 64, Mark.of({"key": "9"}), "{}")}
        held = sinks[number]
        assert store.rebuild(lease, "orders", held, now=later(1), run=None) == 3
        rows = 20 if held else 0
        assert reopen().state("shop", "orders") == StreamState(
            last=held, version=3, rows=rows, bytes=rows * 100, last_rows=10, moved_at=later(1)
        )
        # The very slice that was dropped may come again.
        deliver(store, lease, after(held, 2))
        assert store.state("shop", "orders").version == 4

    def test_rebuild_of_a_stream_the_store_has_lost(self, store: Store) -> None:
        held = Position(4, "4" * 64, None, "{}")
        assert store.rebuild(take(store), "orders", held, now=NOW, run=None) == 1
        assert store.state("shop", "orders") == StreamState(last=held, version=1, moved_at=NOW)

    def test_history_is_newest_first_with_reasons(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        one = deliver(store, lease, after(None, 1), rows=3)
        two = deliver(store, lease, after(one, 2, kind=Kind.REFRESH), rows=4)
        three = deliver(store, lease, after(two, None, kind=Kind.RESET), rows=0)
        store.rebuild(lease, "orders", two, now=later(5), run=None)
        changes = reopen().history("shop", "orders")
        assert [(c.version, c.reason, c.position, c.rows, c.run) for c in changes] == [
            (4, "recover", two, 0, None),
            (3, "reset", three, 0, "r"),
            (2, "refresh", two, 4, "r"),
            (1, "advance", one, 3, "r"),
        ]
        assert changes[0].at == later(5)
        assert list(store.history("shop", "orders", most=2)) == list(changes[:2])

    # ------------------------------------------------------------ gathered and sealed slices

    def test_a_gathered_slice_comes_back_with_its_spool(self, store: Store, reopen: Open) -> None:
        slice_ = replace(after(None, 1), spool="d1")
        assert slice_.id != after(None, 1).id
        store.intend(take(store), slice_, now=NOW, run="r")
        assert reopen().state("shop", "orders").intent == slice_

    def test_the_first_seal_of_the_open_slice_counts(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        slice_ = after(None, 1)
        store.intend(lease, slice_, now=NOW, run="r")
        assert store.state("shop", "orders").seal is None
        first = sealed(slice_)
        assert store.seal(lease, slice_, first, now=NOW) == first
        assert reopen().seal(lease, slice_, sealed(slice_, "a2"), now=NOW) == first
        assert reopen().state("shop", "orders").seal == first
        store.advance(lease, slice_, rows=3, bytes_=24, now=NOW, run="r")
        store.intend(lease, after(slice_.position, 2), now=NOW, run="r")
        assert store.state("shop", "orders").seal is None, "it was of the slice before"

    def test_only_the_open_slice_is_sealed(self, store: Store) -> None:
        lease = take(store)
        slice_, other = after(None, 1), after(None, 2)
        for attempt in (slice_, other):
            with pytest.raises(StreamFailed, match="cannot be sealed"):
                store.seal(lease, attempt, sealed(attempt), now=NOW)
            if attempt is slice_:
                store.intend(lease, slice_, now=NOW, run="r")
        assert store.state("shop", "orders").seal is None

    def test_rebuilding_keeps_a_sealed_slice_open_if_told_so(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        at = deliver(store, lease, after(None, 1))
        open_ = after(at, 2)
        for opened in (None, (open_, sealed(open_))):
            store.rebuild(lease, "orders", at, now=NOW, run=None, sealed=opened)
            state = reopen().state("shop", "orders")
            assert (state.last, state.intent, state.seal) == (at, *(opened or (None, None)))
        store.advance(lease, open_, rows=3, bytes_=24, now=NOW, run="r")
        assert store.state("shop", "orders").last == open_.position

    def test_a_stream_that_begins_elsewhere_was_not_rewound(self, store: Store) -> None:
        """`from: now` makes a first slice without rows; later one of its kind is a rewind."""
        lease = take(store)
        began = deliver(store, lease, after(None, 5, kind=Kind.REWIND), rows=0)
        deliver(store, lease, after(began, 2, kind=Kind.REWIND), rows=0)
        assert [change.reason for change in store.history("shop", "orders")] == ["rewind", "begin"]

    def test_an_undo_of_a_reset_counts_again_what_was_delivered_before_it(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        first = deliver(store, lease, after(None, 1), rows=10, outcome=Outcome(created=10))
        reset = deliver(store, lease, after(first, None, kind=Kind.RESET), rows=0)
        again = deliver(store, lease, after(reset, 5), rows=3, outcome=Outcome(updated=3))
        undo = replace(after(again, 1, kind=Kind.UNDO), plan='{"version":1}')
        at = deliver(store, lease, undo, rows=0)
        state = reopen().state("shop", "orders")
        assert (state.rows, state.bytes, state.outcome) == (13, 1300, Outcome(created=10, updated=3))
        # A redo leads behind the reset again, where only the three were delivered.
        deliver(store, lease, replace(after(at, 5, kind=Kind.UNDO), plan='{"version":3}'), rows=0)
        state = reopen().state("shop", "orders")
        assert (state.rows, state.bytes, state.outcome) == (3, 300, Outcome(updated=3))
        assert [change.total.rows for change in store.history("shop", "orders")] == [3, 13, 3, 0, 10]

    # ------------------------------------------------------------ what stays of the past

    def test_the_newest_changes_stay_and_an_undo_finds_them_without_a_gap(self, open_store: Open) -> None:
        limits = HistoryLimits(changes=30)
        store = open_store(limits=limits)
        lease, at = take(store), None
        for number in range(1, 61):
            at = deliver(store, lease, after(at, number), rows=1)
        versions = [change.version for change in store.history("shop", "orders", most=1000)]
        assert versions == list(range(60, 30, -1))
        assert store.state("shop", "orders").rows == 60
        undo = replace(after(at, 31, kind=Kind.UNDO), plan='{"version":31}')
        deliver(store, lease, undo, rows=0)
        assert store.state("shop", "orders").rows == 60
        store.close()

    def test_old_changes_go_but_the_newest_stay_whatever_their_age(self, open_store: Open) -> None:
        store = open_store(limits=HistoryLimits(days=1))
        lease, at = take(store), None
        for number in range(1, 31):
            at = deliver(store, lease, after(at, number))
        at = deliver(store, lease, after(at, 31), now=later(86_401))
        deliver(store, lease, after(at, 32), now=later(86_401))
        left = [change.version for change in store.history("shop", "orders", most=1000)]
        assert left == list(range(32, 12, -1))
        store.close()

    def test_old_runs_go_and_the_run_before_is_still_continued(self, open_store: Open) -> None:
        store = open_store(limits=HistoryLimits(runs=25))
        lease = take(store)
        for number in range(40):
            store.start_run(lease, f"r{number}", now=later(number))
            end_run(store, lease, f"r{number}", has_more=True)
        assert [run.id for run in store.runs("shop", most=1000)] == [f"r{number}" for number in range(39, 14, -1)]
        assert store.start_run(lease, "next", now=later(41)).continues == "r39"
        store.close()

    def test_a_content_comes_back_with_every_position_that_has_it(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        one = deliver(store, lease, after(None, 1))
        other = following(
            one, pipeline="shop", stream="orders", upto=one.mark, content=Content((Column("id", Plain.INT64),))
        )
        two = deliver(store, lease, other)
        three = deliver(store, lease, after(two, 3))
        store.intend(lease, open_ := after(three, 4), now=NOW, run="r")
        reader = reopen()
        assert [change.position for change in reader.history("shop", "orders")] == [three, two, one]
        state = reader.state("shop", "orders")
        assert (state.last, state.intent) == (three, open_)

    # ------------------------------------------------------------ the runs

    def test_a_run_that_is_complete_is_not_continued(self, store: Store, reopen: Open) -> None:
        lease = take(store)
        first = store.start_run(lease, "r1", now=NOW)
        assert (first.status, first.continues, first.totals, first.ended) == ("running", None, "{}", None)
        end_run(store, lease, "r1", totals='{"rows":1}', streams={"orders": '{"rows":1}'})
        second = store.start_run(lease, "r2", now=later(2))
        assert (second.continues, second.totals, second.streams) == (None, "{}", {})
        done = replace(first, ended=later(1), status="complete", totals='{"rows":1}', streams={"orders": '{"rows":1}'})
        assert list(reopen().runs("shop")) == [second, done]
        assert list(store.runs("shop", most=1)) == [second]
        assert list(store.runs("other")) == []

    def test_a_run_that_was_killed_leaves_its_progress(self, store: Store) -> None:
        lease = take(store)
        store.start_run(lease, "r1", now=NOW)
        store.save_progress(lease, "r1", totals='{"rows":7}', streams={"a": '{"rows":3}', "b": '{"rows":4}'})
        store.save_progress(lease, "r1", totals='{"rows":9}', streams={"b": '{"rows":6}'})
        second = store.start_run(lease, "r2", now=later(1))
        assert (second.totals, second.streams) == ('{"rows":9}', {"a": '{"rows":3}', "b": '{"rows":6}'})
        assert [run.streams for run in store.runs("shop")] == [second.streams, {}]

    def test_a_stream_is_reported_by_the_newest_run_that_has_something_to_report(self, store: Store) -> None:
        lease = take(store)
        for run, streams in (("r1", {"a": "1", "b": "1", "c": "1"}), ("r2", {"a": "2", "b": None})):
            store.start_run(lease, run, now=NOW)
            end_run(store, lease, run, streams=streams)
        store.start_run(lease, "r3", now=NOW)
        assert {run.id: run.streams for run in store.runs("shop")} == {"r3": {}, "r2": {"a": "2"}, "r1": {"c": "1"}}

    def test_a_run_with_more_to_do_is_continued(self, store: Store) -> None:
        lease = take(store)
        store.start_run(lease, "r1", now=NOW)
        end_run(store, lease, "r1", status="limited", has_more=True, totals='{"rows":1}')
        second = store.start_run(lease, "r2", now=NOW)
        assert (second.continues, second.totals) == ("r1", '{"rows":1}')
        assert store.runs("shop")[1].status == "limited"

    def test_a_run_that_never_ended_is_lost_and_continued(self, store: Store) -> None:
        store.start_run(take(store), "r1", now=NOW)
        lease = take(store, "b", now=later(31))
        assert store.start_run(lease, "r2", now=later(32)).continues == "r1"
        assert [(run.id, run.status, run.ended) for run in store.runs("shop")] == [
            ("r2", "running", None),
            ("r1", "lost", None),
        ]

    def test_an_operators_command_continues_nothing_and_is_not_continued(self, store: Store) -> None:
        lease = take(store)
        store.start_run(lease, "r1", now=NOW)
        store.end_run(lease, "r1", now=NOW, status="limited", has_more=True, totals='{"rows": 5}', streams={})
        undo = store.start_run(lease, "u1", now=later(1), verb="undo")
        assert (undo.verb, undo.continues, undo.totals) == ("undo", None, "{}")
        after_it = store.start_run(lease, "r2", now=later(2))
        assert (after_it.verb, after_it.continues) == ("run", None)
        assert [(run.id, run.verb) for run in store.runs("shop")] == [("r2", "run"), ("u1", "undo"), ("r1", "run")]

    # ------------------------------------------------------------ how runs ended

    def test_failures_are_counted_until_a_success(self, store: Store, reopen: Open) -> None:
        first, second = Problem("no column", "Nothing lost.", "check FILE"), Problem("no table", "", "look")
        store.save_report("shop", RunReport(NOW, failed=True, problems={"orders": first, WHOLE_RUN: second}))
        store.save_report("shop", RunReport(later(60), failed=True, problems={"orders": second}))
        assert reopen().failures("shop") == {
            "orders": Failure(second, later(60), NOW, 2),
            WHOLE_RUN: Failure(second, NOW, NOW, 1),
        }
        assert store.failures("other") == {}
        store.save_report("shop", RunReport(later(90), succeeded=("orders", "items")))
        assert reopen().failures("shop") == {
            "orders": Failure(second, later(60), NOW, 0),
            WHOLE_RUN: Failure(second, NOW, NOW, 1),
        }
        store.save_report("shop", RunReport(later(120), failed=True, problems={"orders": first}))
        assert reopen().failures("shop")["orders"] == Failure(first, later(120), later(120), 1)

    def test_the_last_look_is_kept_without_a_lease_for_each_selection(self, store: Store, reopen: Open) -> None:
        assert store.last_looks("shop") == []
        store.save_report("shop", RunReport(NOW, looked=True, idle=True))
        store.save_report("shop", RunReport(later(60), looked=True, idle=True, streams=("items", "orders")))
        store.save_report("shop", RunReport(later(120), looked=True, idle=True, streams=("items", "orders")))
        store.save_report("shop", RunReport(later(180), failed=True))  # no connection
        store.save_report("shop", RunReport(later(240), is_run=False, looked=True))  # an undo
        looks = list(reopen().last_looks("shop"))
        assert looks == [LastLook(("items", "orders"), later(120)), LastLook(None, NOW)]
        assert [look.covers("customers") for look in looks] == [False, True]
        assert store.last_looks("other") == []

    def test_runs_are_counted_by_day_and_old_days_go(self, store: Store, reopen: Open) -> None:
        day = 24 * 3600
        store.save_report("shop", RunReport(later(-DAYS_KEPT * day - day), looked=True, rows=1))
        store.save_report("shop", RunReport(NOW, looked=True, rows=5, bytes=50))
        store.save_report("shop", RunReport(later(60), looked=True, idle=True))
        store.save_report("shop", RunReport(later(120), failed=True, rows=2, bytes=20))
        store.save_report("shop", RunReport(later(180), is_run=False, looked=True))
        store.save_report("shop", RunReport(later(day), looked=True, rows=7, bytes=70))
        newest, first = reopen().days("shop")
        assert first == DayOfRuns(NOW.date(), runs=3, idle=1, failed=1, rows=7, bytes=70, last=later(120))
        assert (newest.day - first.day, newest.rows) == (timedelta(days=1), 7)
        assert [found.rows for found in store.days("shop", most=1)] == [7]
        assert store.days("other") == []

    def test_many_who_report_at_once_are_all_counted(self, store: Store, reopen: Open) -> None:
        handles = [reopen() for _ in range(4)]
        report = RunReport(NOW, looked=True, idle=True, rows=1)
        assert _race(lambda i: handles[i].save_report("shop", report), handles) == [None] * 4
        [day] = store.days("shop")
        assert (day.runs, day.idle, day.rows) == (4, 4, 4)
        assert len(store.last_looks("shop")) == 1


def _race(act: Callable[[int], object], handles: list[Store]) -> list[object]:
    """Let every handle act at the same moment; what each got, results and refusals."""
    barrier = threading.Barrier(len(handles))

    def run(i: int) -> object:
        barrier.wait()
        try:
            return act(i)
        except PenstockError as refused:
            return refused

    with ThreadPoolExecutor(len(handles)) as pool:
        return list(pool.map(run, range(len(handles))))
