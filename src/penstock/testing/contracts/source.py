"""What every Source must keep, as tests. Join by subclassing and giving the fixture `origin`.

`SourceContract` holds for every stream, `IncrementalContract` for those that are read onward from a mark. Two more are
for what some sources do: `ChangesContract` for rows of one key that follow each other, and for deletes;
`GatheringContract` for a source that reads ahead into a spool. Class attributes say what the source under test can do.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import pytest

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice, following
from penstock.errors import StreamFailed, StreamRefused
from penstock.ports import (
    Awaiting,
    Budget,
    Discovering,
    Estimating,
    ExplainingSource,
    Gathering,
    Preparing,
    Releasing,
    Resuming,
    Rewinding,
    Source,
    Spools,
    capability,
    discover,
    estimate,
    explain_source,
    find_mark,
    has_capability,
)

if TYPE_CHECKING:
    import pyarrow as pa

PIPELINE = "contract"
#: small enough that the rows of a test do not fit into one slice
SMALL = Budget(bytes=8 * 1024, workers=2)
#: one slice of many parts, each of few rows, because rows count as large
MANY_PARTS = Budget(bytes=8 << 30, row_bytes=float(1 << 20), workers=4)


class Origin(Protocol):
    """Where the rows of a source under test come from, and how a test changes them."""

    #: the stream under test
    stream: str

    def open(self) -> Source:
        """Another source on the same rows, built from the same configuration; not connected yet."""
        ...

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        """A source on the same rows with one stream, of these options and no others; not connected yet."""
        ...

    def arrive(self, count: int) -> None:
        """Add rows that come after all others; where the source knows ties, mostly tied ones."""
        ...

    def rows(self) -> Sequence[Hashable]:
        """What tells each row of the origin from the others, all that are there now."""
        ...

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        """The same for the rows of a batch."""
        ...

    def traces(self) -> Hashable:
        """All in which a write to the origin would leave a trace."""
        ...


@runtime_checkable
class GatheringOrigin(Protocol):
    """An origin of a source that gathers."""

    @property
    def spools(self) -> Spools:
        """Where its sources look for their spools."""
        ...


class ChangingOrigin(Origin, Protocol):
    """An origin in which rows of one key follow each other, and where rows are deleted."""

    def change(self) -> None:
        """Update and delete rows several times, some of them within one slice; delete one and bring it back."""
        ...

    def current(self) -> Mapping[Hashable, Hashable]:
        """By key, the rows that are there after all changes; those that were deleted are absent."""
        ...

    def tell_changes(self, batch: pa.RecordBatch) -> Sequence[tuple[Hashable, Hashable, str]]:
        """The key, the row and the change (`upsert` or `delete`) of each row of a batch."""
        ...


class VanishingOrigin(Origin, Protocol):
    """An origin whose rows a source gathers."""

    @property
    def spools(self) -> Spools:
        """Where its sources look for their spools."""
        ...

    def vanish(self) -> None:
        """Remove every row: an API that no longer has them."""
        ...


@dataclass(frozen=True)
class Moved:
    """A slice, and what its parts gave."""

    slice: Slice
    #: the rows of each part
    parts: list[list[Hashable]]
    #: the parts' schemas
    schemas: list[pa.Schema]

    @property
    def rows(self) -> list[Hashable]:
        return [row for part in self.parts for row in part]


def read(source: Source, origin: Origin, slice_: Slice) -> Moved:
    """Read a slice as a worker would: through a pickled reader."""
    parts: list[list[Hashable]] = []
    schemas = []
    with source.reading(slice_) as reading:
        reader = pickle.loads(pickle.dumps(reading.reader))
        assert [part.index for part in reading.parts] == list(range(len(reading.parts)))
        for part in pickle.loads(pickle.dumps(reading.parts)):
            with reader.open(part) as batches:
                parts.append([row for batch in batches for row in origin.tell(batch)])
                schemas.append(batches.schema)
    return Moved(slice_, parts, schemas)


def next_slice(
    source: Source,
    origin: Origin,
    last: Position | None,
    *,
    content: Content,
    ceiling: Document,
    budget: Budget = SMALL,
) -> Slice | None:
    """The slice that the engine would intend after `last`."""
    stream = origin.stream
    if last:
        source.accept(stream, last, content)
    after, spool = last.mark if last else None, ""
    planned = source.plan(stream, content, after, ceiling, budget)
    if planned is not None and (gathering := capability(source, Gathering)) is not None:
        assert isinstance(origin, GatheringOrigin)
        with origin.spools.gather(stream, last.number + 1 if last else 1, "contract") as opened:
            planned = gathering.gather(stream, content, after, ceiling, budget, opened)
            spool = origin.spools.close_gathered(opened) if planned else ""
    if planned is None:
        return None
    return following(
        last,
        pipeline=PIPELINE,
        stream=stream,
        upto=planned.upto,
        content=content,
        kind=planned.kind,
        plan=planned.plan,
        spool=spool,
    )


def begin(source: Source, origin: Origin, last: Position | None, run: str) -> tuple[Content, Document | None]:
    """What the engine asks for before the first plan of a run: content and ceiling, after the source has prepared."""
    content = source.content(origin.stream)
    if last:
        source.accept(origin.stream, last, content)
    prepare(source, origin.stream, content, last)
    content = source.content(origin.stream)
    return content, source.ceiling(origin.stream, content, run)


def prepare(source: Source, stream: str, content: Content, last: Position | None) -> Sequence[str]:
    """Let a source prepare that has something to prepare."""
    preparing = capability(source, Preparing)
    return preparing.prepare(stream, content, last) if preparing else ()


def drain(
    source: Source, origin: Origin, last: Position | None = None, *, run: str = "run", budget: Budget = SMALL
) -> list[Moved]:
    """All slices of a run."""
    content, ceiling = begin(source, origin, last, run)
    moved: list[Moved] = []
    while ceiling is not None:
        slice_ = next_slice(source, origin, last, content=content, ceiling=ceiling, budget=budget)
        if slice_ is None:
            break
        moved.append(read(source, origin, slice_))
        last = slice_.position
        assert len(moved) < 1000, "the run does not end"
    return moved


@dataclass
class NewestRows:
    """The newest row of each key, of all that was read so far: what a keyed sink holds."""

    source: Source
    origin: ChangingOrigin
    #: by key; deleted ones are absent
    rows: dict[Hashable, Hashable] = field(default_factory=dict)
    #: what happened to rows
    changes: set[str] = field(default_factory=set)
    #: parts of the slice with the most of them
    most_parts: int = 0
    _versions: dict[Hashable, Any] = field(default_factory=dict)

    def read_run(self, last: Position | None, run: str, budget: Budget) -> Position | None:
        """Read all slices of a run; the last position."""
        content, ceiling = begin(self.source, self.origin, last, run)
        assert content.changes
        assert ceiling is not None
        (column,) = (info.version for info in self.source.catalog() if info.name == self.origin.stream)
        while slice_ := next_slice(self.source, self.origin, last, content=content, ceiling=ceiling, budget=budget):
            with self.source.reading(slice_) as reading:
                self.most_parts = max(self.most_parts, len(reading.parts))
                for part in reading.parts:
                    with reading.reader.open(part) as batches:
                        for batch in batches:
                            self._apply(batch, column)
            last = slice_.position
        return last

    def _apply(self, batch: pa.RecordBatch, column: str | None) -> None:
        told = self.origin.tell_changes(batch)
        versions = batch.column(column).to_pylist() if column else [0] * len(told)
        for (key, row, change), version in zip(told, versions, strict=True):
            if key in self._versions and version < self._versions[key]:
                continue
            self._versions[key] = version
            self.changes.add(change)
            self.rows.pop(key, None)
            if change == "upsert":
                self.rows[key] = row


def each_once(rows: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    return Counter(rows) == Counter(wanted)


class SourceContract:
    #: what the source under test can do besides its port: the suite checks that it can do this and no more
    CAPABILITIES: ClassVar[frozenset[type]] = frozenset(
        {Discovering, Estimating, ExplainingSource, Preparing, Rewinding}
    )
    #: whether a slice never has more rows than its budget says, and as many where there are enough
    EXACT_ROW_BUDGET: ClassVar[bool] = True
    #: whether a large slice is cut into several parts
    PARALLEL_PARTS: ClassVar[bool] = True
    #: what names no place in any source; one whose places are numbers below zero, say, lists its own
    nowhere: tuple[str, ...] = ("nowhere", "", "-1", "1.5", "2026-13-45", "9" * 40)

    #: secrets in the options of the source under test, besides a password
    SECRETS: ClassVar[tuple[str, ...]] = ()

    def shown_addresses(self, origin: Any) -> Sequence[str]:
        """Addresses that may be printed because they hold no secret: a folder that parts name with its scheme, say."""
        return ()

    @pytest.fixture
    def origin(self) -> Origin:
        """An origin without rows."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, origin: Origin) -> Iterator[Source]:
        source = origin.open()
        source.connect()
        yield source
        source.close()

    def test_it_can_do_what_it_is_said_to_do(self, source: Source) -> None:
        every = {Awaiting, Discovering, Estimating, ExplainingSource, Gathering, Preparing, Releasing, Rewinding}
        assert {each for each in every if has_capability(source, each)} == self.CAPABILITIES

    def test_connecting_and_closing_twice_does_no_harm(self, source: Source, origin: Origin) -> None:
        source.connect()
        source.connect()
        assert source.content(origin.stream).columns
        source.close()
        source.close()

    def test_the_catalog_lists_the_stream_once(self, source: Source, origin: Origin) -> None:
        assert [info.name for info in source.catalog()].count(origin.stream) == 1

    def test_content_is_the_same_document_everywhere(self, source: Source, origin: Origin) -> None:
        before = source.content(origin.stream).text
        origin.arrive(3)
        other = origin.open()
        assert other.content(origin.stream).text == source.content(origin.stream).text == before
        other.close()

    def test_all_rows_are_read_each_once(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        moved = drain(source, origin)
        assert each_once([row for one in moved for row in one.rows], origin.rows())

    def test_slices_chain(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        slices = [one.slice for one in drain(source, origin)]
        assert [slice_.number for slice_ in slices] == list(range(1, len(slices) + 1))
        assert slices[0].after is None
        for before, slice_ in pairwise(slices):
            assert slice_.after == before.upto
            assert slice_.after != slice_.upto

    def test_every_part_has_the_same_schema(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        schemas = [schema for one in drain(source, origin) for schema in one.schemas]
        assert schemas
        assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)

    def test_planning_decides_nothing(self, source: Source, origin: Origin) -> None:
        origin.arrive(100)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        first, second = (source.plan(origin.stream, content, None, ceiling, SMALL) for _ in range(2))
        assert first
        assert second
        # A mark may also say where the server was when it was made.
        assert (first.kind, first.rows) == (second.kind, second.rows)
        assert source.describe(first.upto) == source.describe(second.upto)

    def test_preparing_is_reported_in_words_and_once(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        last: Position | None = None
        for run in ("one", "two"):
            told: object = prepare(source, origin.stream, source.content(origin.stream), last)
            assert isinstance(told, list | tuple)
            assert all(isinstance(line, str) and line for line in told)
            content = source.content(origin.stream)
            assert list(prepare(source, origin.stream, content, last)) == [], "what is done is not done again"
            assert source.content(origin.stream).text == content.text
            last = drain(source, origin, last, run=run)[-1].slice.position
            origin.arrive(10)

    def test_preparing_again_in_another_process_changes_no_rows(self, source: Source, origin: Origin) -> None:
        origin.arrive(100)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        planned = source.plan(origin.stream, content, None, ceiling, SMALL)
        other = origin.open()
        again, highest = begin(other, origin, None, "run")
        assert highest is not None
        assert again.text == content.text
        left = (estimate(source, origin.stream, content, None, each).rows for each in (ceiling, highest))
        assert len(set(left)) == 1, "both lead to the same place"
        other.close()
        replanned = source.plan(origin.stream, content, None, ceiling, SMALL)
        # A mark may also say where the server was when it was made.
        assert replanned
        assert planned
        assert (replanned.kind, replanned.rows) == (planned.kind, planned.rows)
        assert each_once([row for one in drain(source, origin) for row in one.rows], origin.rows())

    def test_a_place_that_it_does_not_know_is_refused(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        last = drain(source, origin)[-1].slice.position
        content = source.content(origin.stream)
        for foreign in self.nowhere:
            with pytest.raises(StreamRefused) as refused:
                find_mark(source, origin.stream, content, last, foreign)
            assert refused.value.next_step

    def test_a_run_that_has_read_all_has_nothing_new(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        last = drain(source, origin, run="one")[-1].slice.position
        assert drain(source, origin, last, run="one") == []

    def test_a_mark_that_is_not_the_sources_is_refused(self, source: Source, origin: Origin) -> None:
        origin.arrive(1)
        content = source.content(origin.stream)
        for foreign in ({"sequence": 12}, {"key": "12"}, {"remaining": [{"gte": "1", "lt": "2"}]}, {}):
            last = Position(1, "id", Mark.of(foreign), content.text)
            with pytest.raises(StreamRefused) as refused:
                source.accept(origin.stream, last, content)
            assert refused.value.next_step

    def test_its_own_position_is_accepted_and_so_is_a_reset(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        last = drain(source, origin)[-1].slice.position
        content = source.content(origin.stream)
        source.accept(origin.stream, last, content)
        source.accept(origin.stream, Position(2, "id", None, content.text), content)

    def test_marks_are_described_in_words(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        upto = drain(source, origin)[-1].slice.upto
        assert source.describe(None) != source.describe(upto)
        assert "{" not in source.describe(upto)

    # ------------------------------------------------------------ for those who only look

    def test_what_it_offers_is_accepted_as_it_is(self, source: Source, origin: Origin) -> None:
        origin.arrive(10)
        if Discovering not in self.CAPABILITIES:
            return
        offers = [offered for offered in discover(source) if offered.refused is None]
        assert origin.stream in [offered.name for offered in offers]
        for offered in offers:
            assert offered.columns
            assert offered.reasons
            assert all(reason and "\n" not in reason and "://" not in reason for reason in offered.reasons)
            other = origin.open_with(offered.name, offered.options)
            other.connect()
            assert set(other.content(offered.name).names) <= {name for name, _ in offered.columns}
            assert [info.skipped for info in other.catalog() if info.name == offered.name] == [None]
            other.close()
            if offered.options_if_renamed:
                renamed = origin.open_with("renamed", {**offered.options_if_renamed, **offered.options})
                renamed.connect()
                assert set(renamed.content("renamed").names) <= {name for name, _ in offered.columns}
                renamed.close()

    def test_what_is_left_is_all_at_first_and_nothing_at_the_end(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        before = estimate(source, origin.stream, content, None, ceiling)
        assert before.rows is None or 100 <= before.rows <= 10_000
        assert not before.exact or before.rows == 1000
        last = drain(source, origin)[-1].slice.upto
        after = estimate(source, origin.stream, content, last, ceiling)
        assert after.rows in (None, 0)

    def test_it_says_what_holds_and_what_does_not(self, source: Source, origin: Origin) -> None:
        remarks = explain_source(source, origin.stream, source.content(origin.stream))
        assert ("guarantee" in {remark.kind for remark in remarks}) == (ExplainingSource in self.CAPABILITIES)
        assert {remark.kind for remark in remarks} <= {"guarantee", "gap", "advice"}
        assert all(remark.text and "\n" not in remark.text for remark in remarks)

    def test_looking_leaves_no_trace(self, source: Source, origin: Origin) -> None:
        origin.arrive(100)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        before = origin.traces()
        source.catalog()
        if Discovering in self.CAPABILITIES:
            discover(source)
        explain_source(source, origin.stream, content)
        planned = source.plan(origin.stream, content, None, ceiling, SMALL)
        assert planned is not None
        estimate(source, origin.stream, content, None, ceiling)
        estimate(source, origin.stream, content, planned.upto, ceiling)
        assert origin.traces() == before

    def test_an_open_slice_that_can_be_read_is_checked_without_a_trace(self, source: Source, origin: Origin) -> None:
        resuming = capability(source, Resuming)
        origin.arrive(30)
        slices = [moved.slice for moved in drain(source, origin)]
        before = origin.traces()
        if resuming is not None:
            for slice_ in slices:
                resuming.check_open_slice(slice_)
        assert origin.traces() == before

    def test_secrets_are_not_in_what_is_printed(self, source: Source, origin: Origin) -> None:
        origin.arrive(1)
        slice_ = drain(source, origin)[0].slice
        with source.reading(slice_) as reading:
            shown = f"{source!r} {reading!r} {slice_!r}"
        for address in self.shown_addresses(origin):
            shown = shown.replace(address, "")
        assert reading.parts
        assert "://" not in shown
        assert not [secret for secret in ("password", *self.SECRETS) if secret in shown]


class IncrementalContract(SourceContract):
    #: whether a row that has not changed is delivered once, and never again by a later run
    UNCHANGED_ROWS_ONCE: ClassVar[bool] = True

    def test_a_look_finds_what_a_plan_would_find(self, source: Source, origin: Origin) -> None:
        look = Budget(bytes=SMALL.bytes, rows=1, look=True)
        last: Position | None = None
        for arrived in (0, 10, 0, 1):
            origin.arrive(arrived)
            content = source.content(origin.stream)
            ceiling = source.ceiling(origin.stream, content, "look")
            found = ceiling and source.plan(origin.stream, content, last.mark if last else None, ceiling, look)
            assert bool(found) == bool(arrived)
            moved = drain(source, origin, last)
            last = moved[-1].slice.position if moved else last

    def test_what_is_left_becomes_less_by_what_was_read(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        mark: Mark | None = None
        read = 0
        for moved in drain(source, origin, budget=Budget(bytes=1 << 30, rows=200, workers=2)):
            left = estimate(source, origin.stream, content, mark, ceiling)
            if Estimating not in self.CAPABILITIES:
                assert left.rows is None
                break
            assert left.rows is not None
            assert abs(left.rows - (1000 - read)) <= (0 if left.exact else 100)
            mark, read = moved.slice.upto, read + len(moved.rows)

    def test_without_rows_there_is_nothing_to_read(self, source: Source, origin: Origin) -> None:
        assert drain(source, origin) == []

    def test_a_slice_keeps_its_budget_of_rows(self, source: Source, origin: Origin) -> None:
        origin.arrive(100)
        moved = drain(source, origin, budget=Budget(bytes=1 << 30, rows=7, workers=2))
        if self.EXACT_ROW_BUDGET:
            assert [len(one.rows) for one in moved] == [7] * 14 + [2]
        else:
            assert len(moved) > 1

    def test_a_slice_keeps_its_budget_of_bytes(self, source: Source, origin: Origin) -> None:
        origin.arrive(1000)
        moved = drain(source, origin, budget=Budget(bytes=100 * 1000, row_bytes=1000.0, workers=2))
        assert max(len(one.rows) for one in moved) <= 100

    def test_rows_that_arrive_later_are_read_later_each_once(self, source: Source, origin: Origin) -> None:
        origin.arrive(300)
        moved = drain(source, origin, run="one")
        for run in ("two", "three"):
            origin.arrive(50)
            moved += drain(source, origin, moved[-1].slice.position, run=run)
        rows = [row for one in moved for row in one.rows]
        assert set(rows) == set(origin.rows())
        assert not self.UNCHANGED_ROWS_ONCE or each_once(rows, origin.rows())

    def test_a_run_ends_at_its_ceiling(self, source: Source, origin: Origin) -> None:
        origin.arrive(100)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        there = origin.rows()
        last, rows = None, list[Hashable]()
        while slice_ := next_slice(source, origin, last, content=content, ceiling=ceiling):
            rows += read(source, origin, slice_).rows
            last = slice_.position
            origin.arrive(20)
        assert each_once(rows, there)

    def test_a_replayed_slice_gives_the_same_rows(self, source: Source, origin: Origin) -> None:
        origin.arrive(300)
        moved = drain(source, origin)
        origin.arrive(300)
        other = origin.open()
        for one in moved:
            again = read(other, origin, one.slice)
            assert [sorted(map(str, part)) for part in again.parts] == [sorted(map(str, part)) for part in one.parts]
        other.close()

    def test_a_slice_in_many_parts_is_covered_by_them(self, source: Source, origin: Origin) -> None:
        origin.arrive(5000)
        moved = drain(source, origin, budget=MANY_PARTS)
        assert each_once([row for one in moved for row in one.rows], origin.rows())
        assert (max(len(one.parts) for one in moved) > 1) == self.PARALLEL_PARTS

    def test_a_mark_is_given_back_verbatim(self, source: Source, origin: Origin) -> None:
        origin.arrive(20)
        moved = drain(source, origin, budget=Budget(bytes=1 << 30, rows=7, workers=2))
        last = moved[0].slice.position
        assert last.mark is not None
        # As a store and a sink keep it: a text, read into a mark and a position of its own.
        stored = Position(last.number, last.id, Mark.read(str(last.mark.text)), str(last.content))
        assert stored == last
        other = origin.open()
        rest = drain(other, origin, stored)
        other.close()
        assert each_once([row for one in (moved[0], *rest) for row in one.rows], origin.rows())

    def test_a_gather_that_finds_nothing_makes_no_slice(self, source: Source, origin: Origin) -> None:
        gathering = capability(source, Gathering)
        if gathering is None:
            return
        assert isinstance(origin, GatheringOrigin)
        origin.arrive(10)
        last = drain(source, origin)[-1].slice.position
        content, ceiling = begin(source, origin, last, "another run")
        if ceiling is None:
            return
        with origin.spools.gather(origin.stream, last.number + 1, "nothing") as spool:
            assert gathering.gather(origin.stream, content, last.mark, ceiling, SMALL, spool) is None


class ChangesContract(IncrementalContract):
    """The newest row of a key wins, and a delete is a row like any other.

    The newest is the last one, in the order of parts and of rows in their part; or the one with the highest version,
    where the catalog names a column for it.
    """

    @pytest.mark.parametrize("budget", [SMALL, MANY_PARTS], ids=["few parts", "many parts"])
    def test_the_newest_row_of_a_key_wins(self, source: Source, origin: ChangingOrigin, budget: Budget) -> None:
        origin.arrive(40)
        origin.change()
        newest = NewestRows(source, origin)
        newest.read_run(None, "run", budget)
        assert newest.changes == {"upsert", "delete"}
        assert budget is SMALL or (newest.most_parts > 1) == self.PARALLEL_PARTS
        assert newest.rows == origin.current()

    def test_changes_of_rows_that_were_read_are_read(self, source: Source, origin: ChangingOrigin) -> None:
        origin.arrive(40)
        newest = NewestRows(source, origin)
        last = newest.read_run(None, "one", SMALL)
        assert newest.rows == origin.current()
        origin.change()
        newest.read_run(last, "two", SMALL)
        assert newest.changes == {"upsert", "delete"}
        assert newest.rows == origin.current()

    def test_parts_that_are_read_again_have_their_order_again(self, source: Source, origin: ChangingOrigin) -> None:
        origin.arrive(40)
        origin.change()
        for moved in drain(source, origin, budget=MANY_PARTS):
            assert read(origin.open(), origin, moved.slice).parts == moved.parts


class GatheringContract(SourceContract):
    """A source that reads ahead into a spool; `IncrementalContract` besides, if it reads onward from a mark."""

    @pytest.fixture
    def gathered(self, source: Source, origin: VanishingOrigin) -> Moved:
        """A slice of some rows, which is gathered and not delivered yet."""
        origin.arrive(10)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        slice_ = next_slice(source, origin, None, content=content, ceiling=ceiling)
        assert slice_ is not None
        assert slice_.spool, "the slice names its spool"
        return read(source, origin, slice_)

    def test_a_replay_reads_the_spool_and_never_the_origin(self, origin: VanishingOrigin, gathered: Moved) -> None:
        origin.vanish()
        again = read(origin.open(), origin, gathered.slice)
        assert again.rows
        assert again.parts == gathered.parts

    def test_a_spool_that_is_gone_is_never_an_empty_slice(self, origin: VanishingOrigin, gathered: Moved) -> None:
        origin.spools.sweep(origin.stream, gathered.slice.number)
        with pytest.raises((StreamFailed, StreamRefused)) as refused:
            read(origin.open(), origin, gathered.slice)
        assert refused.value.next_step

    def test_a_plan_leaves_no_spool(self, source: Source, origin: VanishingOrigin) -> None:
        origin.arrive(10)
        content, ceiling = begin(source, origin, None, "run")
        assert ceiling is not None
        before = origin.traces()
        assert source.plan(origin.stream, content, None, ceiling, SMALL) is not None
        assert origin.traces() == before
