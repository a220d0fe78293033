"""What every Sink must keep, as tests. Join by subclassing and giving the fixture `destination`."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.slices import Kind, Part, Receipt, Slice
from penstock.errors import CommitUnclear, SliceRefused, StreamRefused, StreamStopped
from penstock.ports import NoProbe, Probe, Sink, StreamInfo, explain_sink, recover_sink
from penstock.testing.contracts.delivery import (
    CHANGES,
    CONTENT,
    STREAM,
    VERSIONS,
    Crash,
    Crashing,
    Destination,
    after,
    changes,
    deliver,
    position,
    stage_parts,
    table,
    versions,
)

if TYPE_CHECKING:
    import pyarrow as pa


class SinkContract:
    """Every sink. The flags say what the sink under test can do; no test is overridden."""

    #: whether the sink under test keeps one row for each id
    KEYED: ClassVar[bool] = False
    #: a commit is one transaction, after which nothing is left to be done
    COMMITS_AT_ONCE: ClassVar[bool] = False
    #: whether it takes a full refresh
    REFRESHES: ClassVar[bool] = True
    #: whether readers see the rows of a slice in the order of their parts, and of the rows inside a part
    ORDERED: ClassVar[bool] = False
    #: what is refused where there are rows of others
    REFUSED_BESIDE_OTHERS: ClassVar[frozenset[Kind]] = frozenset({Kind.REFRESH})
    #: whether it can withdraw a slice that is in and damaged
    REPAIRS: ClassVar[bool] = True
    #: the ids that readers see after 1 and 2 came and 1 was deleted; None: such a stream is refused
    AFTER_A_DELETE: ClassVar[list[int] | None] = None

    @pytest.fixture
    def destination(self) -> Destination:
        """An empty place."""
        raise NotImplementedError

    @pytest.fixture
    def sink(self, destination: Destination) -> Iterator[Sink]:
        sink = destination.open(NoProbe())
        sink.connect()
        yield sink
        sink.close()

    @pytest.fixture
    def reopened(self, destination: Destination) -> Callable[[], Sink]:
        """The same sink as another process sees it."""
        return lambda: destination.open(NoProbe())

    # ------------------------------------------------------------ visible at once, and only by a commit

    def test_an_empty_sink_holds_nothing(self, sink: Sink, destination: Destination) -> None:
        assert sink.held(STREAM) is None
        assert destination.rows(STREAM) == []

    def test_connecting_and_closing_twice_does_no_harm(self, sink: Sink, destination: Destination) -> None:
        deliver(sink, after(None), table(1))
        sink.connect()
        sink.connect()
        sink.close()
        sink.close()
        assert destination.rows(STREAM) == [1]

    def test_it_takes_a_stream_of_plain_columns(self, sink: Sink) -> None:
        sink.check(StreamInfo(STREAM, Kind.ROWS), CONTENT)
        if self.REFRESHES:
            sink.check(StreamInfo(STREAM, Kind.REFRESH), CONTENT)
            return
        with pytest.raises(StreamRefused) as refused:
            sink.check(StreamInfo(STREAM, Kind.REFRESH), CONTENT)
        assert refused.value.next_step

    def test_it_says_where_a_stream_lands_and_what_holds_there(self, sink: Sink, destination: Destination) -> None:
        for kind in (Kind.ROWS, Kind.REFRESH):
            remarks = explain_sink(sink, StreamInfo(STREAM, kind, ("id",), ("id",)), CONTENT)
            assert remarks[0].kind == "guarantee"
            assert "lands in" in remarks[0].text
            assert {remark.kind for remark in remarks} <= {"guarantee", "gap", "advice"}
            assert all(remark.text and "\n" not in remark.text for remark in remarks)
        assert sink.held(STREAM) is None
        assert (destination.rows(STREAM), destination.count_leftovers()) == ([], 0)

    def test_nothing_is_visible_before_the_commit(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        slice_ = after(None)
        receipts = stage_parts(sink, slice_, table(1, 2, 3), table(4))
        assert destination.rows(STREAM) == []
        assert sink.held(STREAM) is None
        sink.commit(slice_, "a1", receipts)
        assert sorted(destination.rows(STREAM)) == [1, 2, 3, 4]
        for asked in (sink, reopened()):
            held = asked.held(STREAM)
            assert held is not None
            assert held.position == slice_.position
            assert (held.rows, held.bytes) == (4, sum(receipt.bytes for receipt in receipts))

    def test_receipts_count_what_was_put_aside(self, sink: Sink) -> None:
        first, second, empty = stage_parts(sink, after(None), table(1, 2, 3), table(4), table())
        assert [each.part for each in (first, second, empty)] == [0, 1, 2]
        assert [(each.read, each.rows) for each in (first, second, empty)] == [(3, 3), (1, 1), (0, 0)]
        assert first.bytes > second.bytes > empty.bytes
        assert len({each.attempt for each in (first, second, empty)}) == 3
        assert first.schema == second.schema == empty.schema

    def test_slices_follow_each_other(self, sink: Sink, destination: Destination) -> None:
        last = None
        for number in range(1, 4):
            last = deliver(sink, after(last), table(number), attempt=f"a{number}")
            assert position(sink) == last
            assert sorted(destination.rows(STREAM)) == list(range(1, number + 1))

    def test_a_writer_is_small(self, sink: Sink) -> None:
        assert len(pickle.dumps(sink.writer(after(None), "a1"))) < 10_000

    # ------------------------------------------------------------ only after the slice before it

    def test_a_slice_whose_predecessor_is_not_held_is_not_taken(self, sink: Sink, destination: Destination) -> None:
        second = after(after(None).position)
        receipts = stage_parts(sink, second, table(2))
        with pytest.raises(CommitUnclear):
            sink.commit(second, "a1", receipts)
        assert sink.held(STREAM) is None
        assert destination.rows(STREAM) == []
        deliver(sink, after(None), table(1))
        sink.commit(second, "a1", receipts)
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_a_slice_after_another_predecessor_is_not_taken(self, sink: Sink, destination: Destination) -> None:
        held = deliver(sink, after(None), table(1))
        elsewhere = after(after(None, upto=Mark.of({"key": ["other"]})).position)
        assert elsewhere.number == 2
        with pytest.raises(CommitUnclear):
            deliver(sink, elsewhere, table(9))
        assert position(sink) == held
        assert destination.rows(STREAM) == [1]

    def test_a_number_is_given_once(self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]) -> None:
        other = after(None, upto=Mark.of({"key": ["other"]}))
        late = stage_parts(sink, other, table(7, 8), attempt="b1")
        held = deliver(sink, after(None), table(1))
        for late_one in (sink, reopened()):
            with pytest.raises(CommitUnclear):
                late_one.commit(other, "b1", late)
            assert position(sink) == held
            assert destination.rows(STREAM) == [1]

    def test_a_slice_that_is_in_is_not_put_in_again(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        slice_ = after(None)
        again = stage_parts(sink, slice_, table(1, 2), attempt="b1")
        held = deliver(sink, slice_, table(1, 2))
        with pytest.raises(CommitUnclear):
            reopened().commit(slice_, "b1", again)
        assert position(sink) == held
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_an_older_slice_is_not_put_in_again(self, sink: Sink, destination: Destination) -> None:
        first = after(None)
        again = stage_parts(sink, first, table(1), attempt="b1")
        last = deliver(sink, after(deliver(sink, first, table(1))), table(2))
        with pytest.raises(CommitUnclear):
            sink.commit(first, "b1", again)
        assert position(sink) == last
        assert sorted(destination.rows(STREAM)) == [1, 2]

    # ------------------------------------------------------------ what the receipts name and nothing else

    def test_what_no_receipt_names_is_never_visible(self, sink: Sink, destination: Destination) -> None:
        slice_ = after(None)
        stage_parts(sink, slice_, table(1, 99), attempt="b1")
        named = stage_parts(sink, slice_, table(1))
        stage_parts(sink, slice_, table(98))
        sink.commit(slice_, "a1", named)
        assert destination.rows(STREAM) == [1]
        sink.sweep(STREAM, slice_.position)
        last = deliver(sink, after(slice_.position), table(2))
        sink.sweep(STREAM, last)
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_two_tries_of_one_part_do_not_disturb_each_other(self, sink: Sink, destination: Destination) -> None:
        slice_ = after(None)
        writer = sink.writer(slice_, "a1")
        inside, go = threading.Barrier(3), threading.Event()
        receipts: dict[int, Receipt] = {}

        def attempt(number: int) -> None:
            import pyarrow as pa

            whole = table(1, 2, 3, number)
            batches = whole.to_batches(max_chunksize=2)

            def halting() -> Iterator[pa.RecordBatch]:
                yield batches[0]
                inside.wait(30)
                go.wait(30)
                yield batches[1]

            reader = pa.RecordBatchReader.from_batches(whole.schema, halting())
            receipts[number] = writer.write(reader, Part(0, "{}"))

        threads = [threading.Thread(target=attempt, args=(number,)) for number in (10, 20)]
        for thread in threads:
            thread.start()
        inside.wait(30)
        go.set()
        for thread in threads:
            thread.join(30)
        assert receipts[10].attempt != receipts[20].attempt
        sink.commit(slice_, "a1", [receipts[20]])
        assert sorted(destination.rows(STREAM)) == [1, 2, 3, 20]

    def test_a_part_that_fails_leaves_the_others_whole(self, sink: Sink, destination: Destination) -> None:
        import pyarrow as pa

        slice_ = after(None)
        writer = sink.writer(slice_, "a1")
        kept = writer.write(table(1).to_reader(), Part(0, "{}"))

        def breaking() -> Iterator[pa.RecordBatch]:
            yield table(5, 6).to_batches()[0]
            raise RuntimeError("the source went away")

        with pytest.raises(RuntimeError, match="the source went away"):
            writer.write(pa.RecordBatchReader.from_batches(table().schema, breaking()), Part(1, "{}"))
        again = writer.write(table(2).to_reader(), Part(1, "{}"))
        sink.commit(slice_, "a1", [kept, again])
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_counts_that_do_not_add_up_are_refused(self, sink: Sink, destination: Destination) -> None:
        slice_ = after(None)
        receipts = stage_parts(sink, slice_, table(1, 2), table(3))
        for wrong in (receipts[0].rows + 1, receipts[0].rows - 1):
            with pytest.raises(SliceRefused) as refused:
                sink.commit(slice_, "a1", [replace(receipts[0], rows=wrong), receipts[1]])
            assert refused.value.next_step
            assert sink.held(STREAM) is None
            assert destination.rows(STREAM) == []
        sink.commit(slice_, "a1", receipts)
        assert sorted(destination.rows(STREAM)) == [1, 2, 3]

    # ------------------------------------------------------------ slices without rows

    @pytest.mark.parametrize("parts", [0, 1, 3])
    def test_a_slice_without_rows_is_held_too(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink], parts: int
    ) -> None:
        first = deliver(sink, after(None), table(1))
        empty = deliver(sink, after(first), *[table()] * parts)
        held = reopened().held(STREAM)
        assert held is not None
        assert (held.position, held.rows) == (empty, 0)
        assert destination.rows(STREAM) == [1]
        deliver(sink, after(empty), table(2))
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_a_first_slice_without_parts_is_held_though_nobody_asked_for_a_writer(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        """As a first run leaves it that meets an open transaction: it has a mark, and no row yet."""
        empty = after(None)
        sink.commit(empty, "a1", [])
        held = reopened().held(STREAM)
        assert held is not None
        assert (held.position, held.rows) == (empty.position, 0)
        assert destination.rows(STREAM) == []
        deliver(sink, after(empty.position), table(1))
        assert destination.rows(STREAM) == [1]

    def test_a_reset_leads_to_the_beginning_and_removes_nothing(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        first = deliver(sink, after(None), table(1))
        reset = after(first, upto=None, kind=Kind.RESET)
        sink.commit(reset, "a1", [])
        held = position(reopened())
        assert held == reset.position
        assert held is not None
        assert (held.number, held.mark) == (2, None)
        assert destination.rows(STREAM) == [1]
        deliver(sink, after(held), table(1))
        assert destination.rows(STREAM) == ([1] if self.KEYED else [1, 1])

    def test_a_gathered_slice_is_held_with_the_id_that_its_spool_gives_it(
        self, sink: Sink, reopened: Callable[[], Sink]
    ) -> None:
        first = deliver(sink, replace(after(None), spool="d1"), table(1))
        assert position(reopened()) == first
        second = deliver(sink, replace(after(first), spool="d2"), table(2))
        assert position(reopened()) == second

    def test_a_rewind_leads_to_another_mark_and_removes_nothing(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        first = deliver(sink, after(None), table(1))
        second = deliver(sink, after(first), table(2))
        rewind = after(second, upto=first.mark, kind=Kind.REWIND)
        sink.commit(rewind, "a1", [])
        held = reopened().held(STREAM)
        assert held is not None
        assert (held.position, held.rows, held.bytes) == (rewind.position, 0, 0)
        sink.sweep(STREAM, held.position)
        assert sorted(destination.rows(STREAM)) == [1, 2]
        assert list(recover_sink(sink, STREAM)) == []
        deliver(sink, after(held.position), table(2))
        assert sorted(destination.rows(STREAM)) == ([1, 2] if self.KEYED else [1, 2, 2])

    def test_a_refresh_takes_the_place_of_all_before_it(self, sink: Sink, destination: Destination) -> None:
        if not self.REFRESHES:
            return
        last = None
        for rows in ([1, 2, 3], [2, 3], [], [4]):
            slice_ = after(last, kind=Kind.REFRESH)
            receipts = stage_parts(sink, slice_, table(*rows[:1]), table(*rows[1:]))
            before = destination.rows(STREAM)
            if last:
                sink.sweep(STREAM, last)
            assert destination.rows(STREAM) == before
            sink.commit(slice_, "a1", receipts)
            assert sorted(destination.rows(STREAM)) == rows
            last = slice_.position
            sink.sweep(STREAM, last)
            assert sorted(destination.rows(STREAM)) == rows

    def test_a_late_refresh_does_not_come_back(self, sink: Sink, destination: Destination) -> None:
        if not self.REFRESHES:
            return
        first = after(None, kind=Kind.REFRESH)
        late = stage_parts(sink, first, table(1), attempt="b1")
        last = deliver(sink, after(deliver(sink, first, table(1)), kind=Kind.REFRESH), table(2))
        with pytest.raises(CommitUnclear):
            sink.commit(first, "b1", late)
        assert destination.rows(STREAM) == [2]
        assert position(sink) == last

    # ------------------------------------------------------------ sweeping

    def test_leftovers_are_swept_once_their_number_is_held(self, sink: Sink, destination: Destination) -> None:
        first = after(None)
        deliver(sink, first, table(1))
        clean = destination.count_leftovers()
        second = after(first.position)
        stage_parts(sink, second, table(2, 98), attempt="b1")
        stage_parts(sink, second, table(2, 99), attempt="c1")
        assert destination.count_leftovers() > clean
        sink.sweep(STREAM, first.position)
        assert destination.count_leftovers() > clean, (
            "slice 2 is not held: what is staged for it may still be committed"
        )
        deliver(sink, second, table(2))
        sink.sweep(STREAM, second.position)
        assert destination.count_leftovers() == clean
        assert sorted(destination.rows(STREAM)) == [1, 2]
        assert position(sink) == second.position

    def test_what_is_put_aside_for_the_next_slice_outlives_a_sweep(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        first = deliver(sink, after(None), table(1))
        second = after(first)
        receipts = stage_parts(sink, second, table(2))
        reopened().sweep(STREAM, first)
        sink.commit(second, "a1", receipts)
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_sweeping_twice_and_where_nothing_is_does_no_harm(self, sink: Sink, destination: Destination) -> None:
        first = deliver(sink, after(None), table(1))
        for _ in range(2):
            sink.sweep(STREAM, first)
            sink.sweep("unheard of", first)
        assert destination.rows(STREAM) == [1]

    def test_a_writer_that_lost_may_go_on_writing_for_nothing(self, sink: Sink, destination: Destination) -> None:
        slice_ = after(None)
        writer = sink.writer(slice_, "b1")
        early = writer.write(table(1).to_reader(), Part(0, "{}"))
        held = deliver(sink, slice_, table(1))
        sink.sweep(STREAM, held)
        with pytest.raises((CommitUnclear, SliceRefused)):
            sink.commit(slice_, "b1", [early])
        assert destination.rows(STREAM) == [1]
        assert position(sink) == held

    # ------------------------------------------------------------ crashes

    @pytest.mark.parametrize("kind", list(Kind))
    def test_after_a_crash_anywhere_in_a_commit_held_tells_the_truth(
        self, destination: Destination, kind: Kind
    ) -> None:
        if kind is Kind.REFRESH and not self.REFRESHES:
            return

        def begin(stream: str) -> tuple[Slice, list[Receipt]]:
            sink = destination.open(NoProbe())
            first = deliver(sink, after(None, stream=stream, kind=kind if kind.moves else Kind.ROWS), table(1))
            second = after(first, stream=stream, kind=kind)
            if kind is Kind.RESET:
                second = replace(second, upto=None)
            return second, stage_parts(sink, second, table(2), table(3, 4)) if kind.moves else []

        dry = Crashing()
        second, receipts = begin("dry")
        destination.open(dry).commit(second, "a1", receipts)
        wanted = sorted(destination.rows("dry"))
        assert dry.points, "a sink reports its crash points to the probe"
        outcomes = set()
        for call, point in enumerate(dry.points):
            stream = f"crash at {call}"
            second, receipts = begin(stream)
            with pytest.raises(Crash, match=point):
                destination.open(Crashing(at_call=call)).commit(second, "a1", receipts)
            outcomes.add(self.finish(destination, second, receipts, wanted))
        assert outcomes <= {"in", "not in"}
        assert "in" in outcomes, "the last point of a commit comes after its effect"

    def finish(self, destination: Destination, slice_: Slice, receipts: Sequence[Receipt], wanted: list[int]) -> str:
        """What the next process does; the slice must come in whole, once."""
        stream = slice_.stream
        sink = destination.open(NoProbe())
        held = position(sink, stream)
        assert held is not None
        if held.id == slice_.id:
            outcome = "in"
            with pytest.raises(CommitUnclear):
                sink.commit(slice_, "a1", receipts)
        else:
            outcome = "not in"
            assert held.id == slice_.previous
            assert sorted(destination.rows(stream)) == [1]
            sink.commit(slice_, "a1", receipts)
        for _ in range(2):
            again = destination.open(NoProbe())
            assert position(again, stream) == slice_.position
            assert sorted(destination.rows(stream)) == wanted
            again.sweep(stream, slice_.position)
        deliver(sink, after(slice_.position, stream=stream, kind=Kind.REFRESH), table(5), attempt="c1")
        return outcome

    def test_of_two_commits_that_race_one_comes_in(self, destination: Destination) -> None:
        """Wherever the first one stands when the second commits another slice of the same number."""
        dry = Crashing()
        destination.open(dry).commit(*self.two_parts(destination, "dry"))
        for call in range(len(dry.points)):
            stream = f"race {call}"
            slice_, attempt, receipts = self.two_parts(destination, stream)
            other = replace(slice_, upto=Mark.of({"key": ["other"]}))
            theirs = stage_parts(destination.open(NoProbe()), other, table(7, 8), attempt="b1")
            outcomes: dict[str, bool] = {}

            def commit(name: str, probe: Probe, *what: Any, outcomes: dict[str, bool] = outcomes) -> None:
                try:
                    destination.open(probe).commit(*what)
                    outcomes[name] = True
                except CommitUnclear:
                    outcomes[name] = False

            meets = partial(commit, "other", NoProbe(), other, "b1", theirs)
            commit("this", Crashing(at_call=call, action=meets), slice_, attempt, receipts)
            assert sorted(outcomes.values()) == [False, True]
            winner, rows = (slice_, [1, 2, 3]) if outcomes["this"] else (other, [1, 7, 8])
            assert position(destination.open(NoProbe()), stream) == winner.position
            assert sorted(destination.rows(stream)) == rows

    def test_whoever_finishes_may_crash_too(self, destination: Destination) -> None:
        """A sink that commits at once leaves nothing to be finished: asking it writes nothing."""
        dry = Crashing()
        destination.open(dry).commit(*self.two_parts(destination, "dry"))
        deaths = 0
        for call in range(len(dry.points)):
            stream = f"finish {call}"
            slice_, attempt, receipts = self.two_parts(destination, stream)
            with pytest.raises(Crash):
                destination.open(Crashing(at_call=call)).commit(slice_, attempt, receipts)
            for _ in range(20):
                try:
                    position(destination.open(Crashing(at_call=0)), stream)
                    break
                except Crash:
                    assert not self.COMMITS_AT_ONCE
                    deaths += 1
            else:
                raise AssertionError("each process that finishes this slice has as much to do as the one before")
            self.finish(destination, slice_, receipts, [1, 2, 3])
        assert deaths or self.COMMITS_AT_ONCE, "what a commit leaves to be finished has crash points too"

    def two_parts(self, destination: Destination, stream: str) -> tuple[Slice, str, list[Receipt]]:
        """The second slice of a stream, staged in two parts."""
        sink = destination.open(NoProbe())
        slice_ = after(deliver(sink, after(None, stream=stream), table(1)), stream=stream)
        return slice_, "a1", stage_parts(sink, slice_, table(2), table(3))

    def test_a_crash_while_writing_leaves_nothing_to_see(self, destination: Destination) -> None:
        slice_ = after(None)
        dry = Crashing()
        stage_parts(destination.open(dry), after(None, stream="dry"), table(1))
        for call, point in enumerate(dry.points):
            writer = destination.open(Crashing(at_call=call)).writer(slice_, f"b{call}")
            with pytest.raises(Crash, match=point):
                writer.write(table(9).to_reader(), Part(0, "{}"))
        sink = destination.open(NoProbe())
        assert sink.held(STREAM) is None
        held = deliver(sink, slice_, table(1))
        sink.sweep(STREAM, held)
        assert destination.rows(STREAM) == [1]

    # ------------------------------------------------------------ damage

    def test_a_damaged_sink_stops_until_it_is_recovered(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        first = deliver(sink, after(None), table(1))
        second = after(first)
        deliver(sink, second, table(2, 3), table(4))
        destination.damage(STREAM)
        for asked in (sink, reopened()):
            with pytest.raises(StreamStopped) as stopped:
                asked.held(STREAM)
            assert "recover" in stopped.value.next_step
        if not self.REPAIRS:
            assert list(recover_sink(sink, STREAM)) == []
            assert len(destination.rows(STREAM)) >= 1, "what readers have is left alone"
            return
        with pytest.raises(StreamStopped):
            sink.commit(after(second.position), "c1", stage_parts(sink, after(second.position), table(5), attempt="c1"))
        said = recover_sink(sink, STREAM)
        assert said
        assert all("slice" in line for line in said)
        held = position(reopened())
        assert held in (first, None)
        for slice_, rows in ((after(None), [1]), (second, [2, 3, 4])):
            if slice_.previous == (held.id if held else ""):
                held = deliver(sink, slice_, table(*rows), attempt=f"again{slice_.number}")
        assert held == second.position
        assert sorted(destination.rows(STREAM)) == [1, 2, 3, 4]
        assert list(recover_sink(reopened(), STREAM)) == []

    def test_a_whole_sink_has_nothing_to_recover(self, sink: Sink, destination: Destination) -> None:
        assert list(recover_sink(sink, STREAM)) == []
        last = deliver(sink, after(deliver(sink, after(None), table(1))), table(2))
        assert list(recover_sink(sink, STREAM)) == []
        assert position(sink) == last
        assert sorted(destination.rows(STREAM)) == [1, 2]

    def test_recovering_finishes_what_a_crash_left(self, destination: Destination) -> None:
        sink = destination.open(NoProbe())
        dry = Crashing()
        destination.open(dry).commit(
            after(None, stream="dry"), "a1", stage_parts(sink, after(None, stream="dry"), table(1))
        )
        for call in range(len(dry.points)):
            stream = f"recover {call}"
            slice_ = after(None, stream=stream)
            receipts = stage_parts(sink, slice_, table(1))
            with pytest.raises(Crash):
                destination.open(Crashing(at_call=call)).commit(slice_, "a1", receipts)
            assert list(recover_sink(sink, stream)) == []
            assert destination.rows(stream) == ([1] if position(sink, stream) else [])

    # ------------------------------------------------------------ what was there, and what rows mean

    @pytest.mark.parametrize("kind", [Kind.ROWS, Kind.REFRESH])
    def test_rows_of_others_stay_unless_the_user_agrees(self, sink: Sink, destination: Destination, kind: Kind) -> None:
        """They stay beside those of the stream, or the stream is refused before anything is written."""
        destination.occupy(STREAM, 91, 92)
        info = StreamInfo(STREAM, kind, ("id",), ("id",) if kind is Kind.ROWS else ())
        sink.begin_run([info])
        if kind in self.REFUSED_BESIDE_OTHERS:
            with pytest.raises(StreamRefused) as refused:
                sink.check(info, CONTENT)
            assert refused.value.next_step
            assert sink.held(STREAM) is None
            assert sorted(destination.rows(STREAM)) == [91, 92]
            return
        sink.check(info, CONTENT)
        deliver(sink, after(None, kind=kind), table(1))
        assert sorted(destination.rows(STREAM)) == [1, 91, 92]

    def test_a_delete_is_rendered_or_refused(self, sink: Sink, destination: Destination) -> None:
        """Never as a row that looks like any other."""
        info = StreamInfo(STREAM, Kind.ROWS, ("id",), ("place",), in_order=True)
        sink.begin_run([info])
        if self.AFTER_A_DELETE is None:
            with pytest.raises(StreamRefused) as refused:
                sink.check(info, CHANGES)
            assert refused.value.next_step
            assert destination.rows(STREAM) == []
            return
        sink.check(info, CHANGES)
        first = deliver(sink, after(None, content=CHANGES), changes((1, "upsert"), (2, "upsert")))
        last = deliver(sink, after(first, content=CHANGES), changes((1, "delete")))
        assert sorted(destination.rows(STREAM)) == self.AFTER_A_DELETE
        assert position(sink) == last

    def test_parts_apply_in_their_order_and_so_do_the_rows_inside_a_part(
        self, sink: Sink, destination: Destination
    ) -> None:
        """Of two rows with one key the last one wins, upsert or delete, in whatever order the receipts come."""
        info = StreamInfo(STREAM, Kind.ROWS, ("id",), ("place",), in_order=True)
        sink.begin_run([info])
        if self.AFTER_A_DELETE is None:
            sink.check(info, CONTENT)
            slice_ = after(None)
            receipts = stage_parts(sink, slice_, table(1, 2), table(3), table(4, 5))
            sink.commit(slice_, "a1", receipts[::-1])
            rows = destination.rows(STREAM)
            assert (rows if self.ORDERED else sorted(rows)) == [1, 2, 3, 4, 5]
            return
        sink.check(info, CHANGES)
        first = [(1, "upsert"), (2, "upsert"), (3, "upsert"), (3, "delete"), (5, "delete")]
        second = [(1, "delete"), (2, "delete"), (2, "upsert"), (4, "delete"), (4, "upsert")]
        slice_ = after(None, content=CHANGES)
        receipts = stage_parts(sink, slice_, changes(*first), changes(*second), changes((5, "upsert")))
        sink.commit(slice_, "a1", receipts[::-1])
        rows = destination.rows(STREAM)
        if self.KEYED:
            assert sorted(rows) == [2, 4, 5]
        elif self.ORDERED:
            shown = ("upsert", "delete") if self.AFTER_A_DELETE.count(1) > 1 else ("upsert",)
            assert rows == [id_ for id_, change in (*first, *second, (5, "upsert")) if change in shown]
        else:
            assert sorted(rows) == [1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5]

    def test_a_position_is_given_back_verbatim(
        self, sink: Sink, destination: Destination, reopened: Callable[[], Sink]
    ) -> None:
        """Mark and content are the source's: a sink neither reads them nor changes their text."""
        odd: Document = {
            "key": ["1.50", "é\u2028\"'\\", str(10**40), None, True],
            "b": {},
            "a": [[], {"": 9**20}],
        }
        identity = {"database": "größe ' \" \\ {} %s $1", "zone": "+00"}
        content = replace(CONTENT, filter="name <> 'é%'", identity=identity, private=odd)
        last = None
        for number, mark in enumerate((Mark.of(odd), Mark.of({"key": []}), Mark.of({})), 1):
            slice_ = after(last, upto=mark, content=content)
            last = deliver(sink, slice_, table(number))
            held = position(reopened())
            assert held == slice_.position
            assert held is not None
            assert held.mark is not None
            assert (held.mark.text, held.content) == (mark.text, content.text)

    def test_of_rows_that_share_a_key_the_newest_stays(self, sink: Sink, destination: Destination) -> None:
        """Neither the rows of a slice nor the slices of a first load come in the order of the cursor."""
        info = StreamInfo(STREAM, Kind.ROWS, ("row",), ("at", "row"))
        sink.begin_run([info])
        sink.check(info, VERSIONS)
        first = versions((1, 1, 20), (2, 2, 11), (3, 2, 10))
        second = versions((4, 1, 19), (5, 2, 12), (6, 3, 5))
        last = deliver(sink, after(None, content=VERSIONS), first)
        deliver(sink, after(last, content=VERSIONS), second)
        newest = [5, 12, 20] if self.KEYED else [5, 10, 11, 12, 19, 20]
        assert sorted(destination.rows(STREAM, "at")) == newest

    # ------------------------------------------------------------ neighbours

    def test_streams_do_not_mix(self, sink: Sink, destination: Destination) -> None:
        names = [
            "orders",
            "orders.items",
            "_orders",
            "orders items",
            "Orders",
            "größe",
            ".orders",
            "a/b",
            "a%2Fb",
            "..",
        ]
        lasts = {name: deliver(sink, after(None, stream=name), table(number)) for number, name in enumerate(names)}
        for number, name in enumerate(names):
            assert destination.rows(name) == [number], name
            assert position(sink, name) == lasts[name]
        sink.sweep("orders", deliver(sink, after(lasts["orders"], stream="orders"), table(100)))
        assert sorted(destination.rows("orders")) == [0, 100]
        for number, name in list(enumerate(names))[1:]:
            assert destination.rows(name) == [number], name

    def test_pipelines_do_not_mix(self, sink: Sink, destination: Destination) -> None:
        other = destination.open(NoProbe(), "another")
        mine = deliver(sink, after(None), table(1))
        assert other.held(STREAM) is None
        theirs = deliver(other, after(None, pipeline="another"), table(2))
        assert (position(sink), position(other)) == (mine, theirs)
        for swept, held in ((sink, mine), (other, theirs)):
            swept.sweep(STREAM, held)
            assert list(recover_sink(swept, STREAM)) == []
        mine = deliver(sink, after(mine), table(3))
        assert (position(sink), position(other)) == (mine, theirs)
        assert sorted(destination.rows(STREAM)) == [1, 2, 3]
