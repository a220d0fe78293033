"""What every Mover must keep, as tests. Join by subclassing and giving the fixtures `mover` and `another`.

Readers and writers here travel to workers by name, so they live in this module and speak through files.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.documents import canonical, digest, parse
from penstock.core.slices import Part, Receipt
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import Mover

if TYPE_CHECKING:
    import pyarrow as pa

#: seconds that nothing here takes unless it hangs
PATIENCE_SECONDS = 60.0


def parts(*sizes: int) -> list[Part]:
    """Parts with these numbers of rows; the rows of a part begin where the one before ended."""
    firsts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [
        Part(index, canonical({"first": first, "rows": size}))
        for index, (first, size) in enumerate(zip(firsts, sizes, strict=True))
    ]


@dataclass(frozen=True)
class Numbers:
    """A reader whose rows are numbers, two a batch."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        terms = parse(part.terms)
        numbers = pa.table({"n": pa.array(range(terms["first"], terms["first"] + terms["rows"]), pa.int64())})
        return pa.RecordBatchReader.from_batches(numbers.schema, iter(numbers.to_batches(max_chunksize=2)))


@dataclass(frozen=True)
class Notes:
    """A writer that notes each part's numbers in a file of its own, under a name that no other try has."""

    folder: str

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        numbers = [number for batch in batches for number in batch.column("n").to_pylist()]
        name = f"{part.index}-{os.getpid()}-{time.monotonic_ns()}"
        Path(self.folder, name).write_text(json.dumps(numbers))
        return Receipt(
            part=part.index,
            attempt=name,
            read=len(numbers),
            rows=len(numbers),
            bytes=8 * len(numbers),
            schema=digest("n"),
            pieces=canonical({"name": name}),
        )


@dataclass(frozen=True)
class Raising:
    """A reader that raises in one part, when it is opened or in the middle of its rows."""

    #: pickled, because an error does not say how it was made
    error: bytes
    part: int
    late: bool = False

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        good = Numbers().open(part)
        if part.index != self.part:
            return good
        if not self.late:
            raise pickle.loads(self.error)

        def breaking() -> Iterator[pa.RecordBatch]:
            yield next(iter(good))
            raise pickle.loads(self.error)

        return pa.RecordBatchReader.from_batches(good.schema, breaking())


@dataclass(frozen=True)
class Waiting:
    """A reader that says where it is and goes on only once it is let go."""

    folder: str

    def open(self, part: Part) -> pa.RecordBatchReader:
        Path(self.folder, f"waiting-{part.index}").touch()
        until(lambda: Path(self.folder, "go").exists())
        return Numbers().open(part)


class Odd(Exception):
    """An exception whose name says nothing to anyone who looks for `Error`."""


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class MoverContract:
    @pytest.fixture
    def mover(self) -> Mover:
        """A mover; tests may share one."""
        raise NotImplementedError

    @pytest.fixture
    def another(self) -> Mover:
        """A mover of this test's own, which it may cancel."""
        raise NotImplementedError

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path

    def noted(self, folder: Path, receipts: Sequence[Receipt]) -> list[list[int]]:
        """What the parts' receipts name, by part."""
        by_part = sorted(receipts, key=lambda receipt: receipt.part)
        return [json.loads((folder / parse(receipt.pieces)["name"]).read_text()) for receipt in by_part]

    def test_it_says_how_many_parts_move_at_once(self, mover: Mover) -> None:
        assert mover.workers >= 1

    def test_no_parts_no_receipts(self, mover: Mover, folder: Path) -> None:
        assert list(mover.move(Numbers(), Notes(str(folder)), [])) == []

    @pytest.mark.parametrize("sizes", [[3], [0], [3, 0, 5, 1], [1] * 7])
    def test_one_receipt_for_each_part(self, mover: Mover, folder: Path, sizes: list[int]) -> None:
        wanted = parts(*sizes)
        receipts = mover.move(Numbers(), Notes(str(folder)), wanted)
        assert sorted(receipt.part for receipt in receipts) == [part.index for part in wanted]
        firsts = [sum(sizes[:index]) for index in range(len(sizes))]
        assert self.noted(folder, receipts) == [
            list(range(first, first + size)) for first, size in zip(firsts, sizes, strict=True)
        ]
        by_part = sorted(receipts, key=lambda receipt: receipt.part)
        assert [(receipt.read, receipt.rows) for receipt in by_part] == [(size, size) for size in sizes]

    def test_a_part_is_known_by_its_index_not_by_its_place(self, mover: Mover, folder: Path) -> None:
        first, second, third = parts(1, 2, 3)
        receipts = mover.move(Numbers(), Notes(str(folder)), [third, first, second])
        assert sorted(receipt.part for receipt in receipts) == [0, 1, 2]
        assert self.noted(folder, receipts) == [[0], [1, 2], [3, 4, 5]]

    def test_what_was_read_is_counted_on_the_way(self, mover: Mover, folder: Path) -> None:
        """Not by the writer: a writer that loses rows must not be able to say so itself."""
        (receipt,) = mover.move(Numbers(), Losing(str(folder)), parts(5))
        assert (receipt.read, receipt.rows) == (5, 4)

    def test_it_moves_one_slice_after_the_other(self, mover: Mover, folder: Path) -> None:
        for _ in range(3):
            assert len(mover.move(Numbers(), Notes(str(folder)), parts(1, 1))) == 2

    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize("kind", [StreamFailed, StreamRefused, ConnectionFailed])
    def test_a_known_error_arrives_as_itself(
        self, mover: Mover, folder: Path, kind: type[PenstockError], late: bool
    ) -> None:
        error = kind("the table went away", next_step="bring it back", safe="all safe", pipeline="p", stream="s")
        with pytest.raises(PenstockError) as raised:
            mover.move(Raising(pickle.dumps(error), part=1, late=late), Notes(str(folder)), parts(2, 2, 2))
        assert type(raised.value) is kind
        assert str(raised.value) == "p/s: the table went away\nall safe\nNext: bring it back"
        assert vars(raised.value) == vars(error)

    @pytest.mark.parametrize("late", [False, True])
    @pytest.mark.parametrize(
        "error",
        [ValueError("seven is not\na colour"), KeyError("colour"), Odd("it is odd"), OSError(5, "io")],
        ids=repr,
    )
    def test_an_unexpected_exception_arrives_as_a_failure_that_names_it(
        self, mover: Mover, folder: Path, error: Exception, late: bool
    ) -> None:
        with pytest.raises(StreamFailed) as raised:
            mover.move(Raising(pickle.dumps(error), part=1, late=late), Notes(str(folder)), parts(2, 2, 2))
        assert type(raised.value) is StreamFailed
        assert f"{type(error).__name__}: {str(error).splitlines()[0]}" in raised.value.what
        assert "\n" not in raised.value.what
        assert raised.value.next_step

    def test_after_a_failure_it_moves_on(self, mover: Mover, folder: Path) -> None:
        with pytest.raises(StreamFailed):
            mover.move(Raising(pickle.dumps(ValueError("no")), part=0), Notes(str(folder)), parts(2))
        receipts = mover.move(Numbers(), Notes(str(folder)), parts(2))
        assert self.noted(folder, receipts) == [[0, 1]]

    def test_a_move_that_is_cancelled_from_another_thread_ends_soon(self, another: Mover, folder: Path) -> None:
        """While a part is under way: what it staged is in no receipt."""

        def cancel() -> None:
            until(lambda: (folder / "waiting-0").exists())
            another.cancel()
            if not self.gives_up_a_part:
                (folder / "go").touch()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(StreamFailed) as cancelled:
            another.move(Waiting(str(folder)), Notes(str(folder)), parts(1, 1, 1))
        canceller.join(PATIENCE_SECONDS)
        (folder / "go").touch()
        assert "cancelled" in cancelled.value.what
        assert cancelled.value.next_step

    #: whether a move that is cancelled ends while a part is under way, rather than after it
    gives_up_a_part = True

    def test_a_mover_that_was_cancelled_moves_nothing_more(self, another: Mover, folder: Path) -> None:
        another.cancel()
        with pytest.raises(StreamFailed, match="cancelled"):
            another.move(Numbers(), Notes(str(folder)), parts(1))
        assert list(folder.iterdir()) == []


@dataclass(frozen=True)
class Losing:
    """A writer that loses the last row and says nothing."""

    folder: str

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        import pyarrow as pa

        table = batches.read_all()
        shorter = table.slice(0, table.num_rows - 1).to_batches()
        return Notes(self.folder).write(pa.RecordBatchReader.from_batches(table.schema, shorter), part)
