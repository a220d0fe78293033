"""What a sink that seals must keep, as tests. Join by subclassing and giving the fixture `destination`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import pytest

from penstock.core.slices import Receipt, Slice
from penstock.errors import CommitUnclear, StreamStopped
from penstock.ports import NoProbe, Probe, Sealing, Sink, Withdrawing, capability, has_capability
from penstock.testing.contracts.delivery import STREAM, Crash, Crashing, after, position, stage_parts

if TYPE_CHECKING:
    import pyarrow as pa


class SealedDestination(Protocol):
    """Where the pieces of a sink under test go, as a reader sees them."""

    def open(self, probe: Probe) -> Sink:
        """Another sink on the same receiver and the same spools."""
        ...

    def table(self, *ids: int) -> pa.Table:
        """Rows that the sink takes, known by their ids."""
        ...

    def rows(self) -> list[int]:
        """The ids of the stream's rows that readers see: those of complete slices."""
        ...

    def lose_staged(self, receipt: Receipt) -> None:
        """Remove what was staged for a part."""
        ...

    def damage_staged(self, receipt: Receipt) -> None:
        """Change what was staged for a part."""
        ...


class SealingContract:
    """Every sink that seals. The flag says what its receiver can do."""

    #: whether the receiver can withdraw an open slice
    WITHDRAWS: ClassVar[bool] = True

    @pytest.fixture
    def destination(self) -> SealedDestination:
        """An empty receiver."""
        raise NotImplementedError

    @pytest.fixture
    def sink(self, destination: SealedDestination) -> Sink:
        return destination.open(NoProbe())

    @pytest.fixture
    def slice_(self) -> Slice:
        return after(None)

    @pytest.fixture
    def receipts(self, sink: Sink, destination: SealedDestination, slice_: Slice) -> list[Receipt]:
        """A slice of three pieces, staged."""
        return stage_parts(sink, slice_, destination.table(1, 2), destination.table(3), destination.table(4, 5))

    def deliver_first_piece(
        self, destination: SealedDestination, slice_: Slice, receipts: Sequence[Receipt], attempt: str = "a1"
    ) -> None:
        """Die after the first piece: at the first crash point of the commit."""
        with pytest.raises(Crash):
            destination.open(Crashing(at_call=0)).commit(slice_, attempt, receipts)

    def test_it_can_do_what_it_is_said_to_do(self, sink: Sink) -> None:
        assert has_capability(sink, Sealing)
        assert has_capability(sink, Withdrawing) == self.WITHDRAWS

    def test_what_is_staged_is_found_until_it_is_lost_or_damaged(
        self, destination: SealedDestination, slice_: Slice, receipts: list[Receipt]
    ) -> None:
        seals = self.seals(destination.open(NoProbe()))
        assert seals.is_staged(slice_, "a1", receipts)
        destination.damage_staged(receipts[1])
        assert not seals.is_staged(slice_, "a1", receipts)
        assert seals.is_staged(slice_, "a1", [receipts[0], receipts[2]])
        destination.lose_staged(receipts[0])
        assert not seals.is_staged(slice_, "a1", [receipts[0]])

    def test_every_piece_has_a_line_for_the_operator(self, sink: Sink, slice_: Slice, receipts: list[Receipt]) -> None:
        lines = self.seals(sink).describe_pieces(slice_, receipts)
        assert len(set(lines)) == 3
        assert all(line and "\n" not in line for line in lines)

    def test_nothing_leaves_before_the_commit(
        self, sink: Sink, destination: SealedDestination, receipts: list[Receipt]
    ) -> None:
        assert destination.rows() == []
        assert sink.held(STREAM) is None
        assert self.open_slice(sink) is None

    def test_a_slice_that_was_delivered_in_part_is_finished_with_the_same_pieces(
        self, destination: SealedDestination, slice_: Slice, receipts: list[Receipt]
    ) -> None:
        self.deliver_first_piece(destination, slice_, receipts)
        assert destination.rows() == [], "a slice becomes visible with its last piece"
        again = destination.open(NoProbe())
        assert again.held(STREAM) is None
        assert self.open_slice(again) == (slice_.id if self.WITHDRAWS else None)
        again.commit(slice_, "a1", receipts)
        assert destination.rows() == [1, 2, 3, 4, 5]
        assert position(again) == slice_.position
        assert self.open_slice(again) is None

    def test_other_pieces_of_an_open_slice_are_refused(
        self, sink: Sink, destination: SealedDestination, slice_: Slice, receipts: list[Receipt]
    ) -> None:
        others = stage_parts(sink, slice_, destination.table(1), destination.table(3, 4), attempt="b1")
        self.deliver_first_piece(destination, slice_, receipts)
        with pytest.raises((StreamStopped, CommitUnclear)):
            sink.commit(slice_, "b1", others)
        sink.commit(slice_, "a1", receipts)
        assert destination.rows() == [1, 2, 3, 4, 5]

    def test_another_slice_is_refused_while_one_is_open(
        self, sink: Sink, destination: SealedDestination, slice_: Slice, receipts: list[Receipt]
    ) -> None:
        other = after(None, spool="another")
        theirs = stage_parts(sink, other, destination.table(8), destination.table(9), attempt="b1")
        self.deliver_first_piece(destination, slice_, receipts)
        with pytest.raises((StreamStopped, CommitUnclear)):
            sink.commit(other, "b1", theirs)
        assert destination.rows() == []

    def test_a_withdrawn_slice_leaves_nothing_and_can_be_delivered_otherwise(
        self, sink: Sink, destination: SealedDestination, slice_: Slice, receipts: list[Receipt]
    ) -> None:
        withdrawing = capability(sink, Withdrawing)
        if withdrawing is None:
            return
        sink.commit(slice_, "a1", receipts)
        second = after(slice_.position)
        staged = stage_parts(sink, second, destination.table(6), destination.table(7))
        self.deliver_first_piece(destination, second, staged)
        assert withdrawing.open_slice(STREAM) == second.id
        assert withdrawing.withdraw(STREAM, second.id)
        withdrawing.withdraw(STREAM, second.id)
        assert withdrawing.open_slice(STREAM) is None
        assert position(sink) == slice_.position
        other = after(slice_.position, spool="another")
        sink.commit(other, "b1", stage_parts(sink, other, destination.table(8), attempt="b1"))
        assert destination.rows() == [1, 2, 3, 4, 5, 8]

    def seals(self, sink: Sink) -> Sealing:
        found = capability(sink, Sealing)
        assert found is not None
        return found

    def open_slice(self, sink: Sink) -> str | None:
        withdrawing = capability(sink, Withdrawing)
        return withdrawing.open_slice(STREAM) if withdrawing else None
