"""Compares one stream's source and sink: by key ranges down to keys, within limits. Reads only, and needs no lease.

Rows in flight are no differences. The source gives only rows at or below the mark that the sink holds, and every key
that differs is looked at again on both sides, while the sink holds one and the same slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from penstock.core.comparing import Difference, Side, classify, find_differences, narrow
from penstock.core.content import Content
from penstock.core.drift import EVOLVE, follow_drift
from penstock.core.limits import Limits
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.core.retry import Retry
from penstock.ports import (
    ComparedColumns,
    ComparedRows,
    ComparingSink,
    ComparingSource,
    Sink,
    SinkComparison,
    Source,
    StreamInfo,
    capability,
    not_comparable,
)

#: a comparison ends at this many differences: the sides are not copies of each other
MAX_DIFFERENCES = 100_000
#: of a look at keys, while a run changes the sink
LOOKS = Retry(5)


@dataclass
class Differences:
    """What a comparison of one stream has found."""

    columns: ComparedColumns
    #: rows of the source that were compared
    rows: int = 0
    #: keys that differ
    keys: dict[Key, Difference] = field(default_factory=dict)
    #: keys that differ for now: their newest version is not delivered yet, or outside of the stream's filter
    in_flight: int = 0
    #: missing keys whose rows are in quarantine
    quarantined: int = 0
    #: keys that a run was changing whenever they were looked at
    unsettled: int = 0
    #: where the comparison ended, and the limit that ended it; None: everything was compared
    ended_after: Key | None = None
    limit: str | None = None

    def of_kind(self, kind: Difference) -> list[Key]:
        return [key for key, found in self.keys.items() if found is kind]


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """What a search for deleted rows has found."""

    keys: Sequence[Key]
    #: the key after which the next search goes on; None: at the first
    upto: Key | None
    #: about how many rows were compared
    rows: int


@dataclass
class Comparison:
    """One stream of a pipeline."""

    info: StreamInfo
    source: Source
    sink: Sink
    #: what happens when its columns change; see core.drift
    drift: str = EVOLVE
    dropped_columns: Sequence[str] = ()
    #: seconds since a fixed time
    elapsed: Callable[[], float] = lambda: 0.0
    #: called with the number of rows compared so far
    report: Callable[[int], None] = lambda _: None
    #: compare which keys exist, and no values
    keys_only: bool = False

    def __post_init__(self) -> None:
        self._reading, self._writing = require_capabilities(self.info, self.source, self.sink)
        self._mark()
        held = self.sink.held(self.info.name)
        now = self.source.content(self.info.name)
        if held is not None:
            self.source.accept(self.info.name, held.position, now)
            now = follow_drift(Content.parse(held.position.content), now, self.drift, dropped=self.dropped_columns)
        self.content = now
        columns = self._reading.compared_columns(self.info.name, self.content)
        if self.keys_only:
            columns = replace(columns, values=(), skipped={})
        self.side: SinkComparison = self._writing.compare(self.info, columns)

    @property
    def columns(self) -> ComparedColumns:
        return self.side.columns

    def run(self, limits: Limits | None = None, after: Key | None = None) -> Differences:
        """Compare, beginning after a key."""
        found, limits, begun = Differences(self.columns), limits or Limits(), self.elapsed()
        with closing(self._rows(self._mark())) as rows:
            self._run(rows, found, limits, after, begun)
        return found

    def _run(self, rows: ComparedRows, found: Differences, limits: Limits, after: Key | None, begun: float) -> None:
        def find_limit() -> str | None:
            if len(found.keys) >= MAX_DIFFERENCES:
                return f"{MAX_DIFFERENCES} differences"
            return limits.describe_reached(moved=found.rows, elapsed=self.elapsed() - begun)

        window = Range(after, self._find_end(rows, after, limits.rows_left(found.rows)))
        while True:
            for compared in narrow(_side(rows), _side(self.side.rows), window):
                found.rows += compared.rows
                if not compared.equal:
                    self._compare_keys(rows, compared.range, found)
                self.report(found.rows)
                found.ended_after, found.limit = compared.range.upto, find_limit()
                if found.limit and compared.range.upto is not None:
                    return
            if window.upto is None:
                found.ended_after = found.limit = None
                return
            window = Range(window.upto, self._find_end(rows, window.upto, limits.rows_left(found.rows)))

    def find_deleted(self, after: Key | None, rows: int | None) -> DeletedKeys:
        """Find keys that were deleted at the source, among that many rows of the sink after a key.

        The source gives rows above the mark too: their keys exist.
        """
        upto = self.side.rows.find_end(after, rows) if rows is not None else None
        window, found = Range(after, upto), Differences(self.columns)
        source = self._reading.compared_rows(self.info.name, self.content, self._mark(), self.columns, above=True)
        with closing(source):
            for compared in narrow(_side(source), _side(self.side.rows), window):
                if not compared.equal:
                    self._compare_keys(source, compared.range, found)
                found.rows += compared.rows
                self.report(found.rows)
                if len(found.keys) >= MAX_DIFFERENCES:
                    upto = compared.range.upto
                    break
        keys = found.of_kind(Difference.EXTRA)
        # Every key of the sink is one that the source has, or was deleted there.
        return DeletedKeys(keys, upto, found.rows + len(keys))

    def look_again(self, keys: Sequence[Key], found: Differences) -> None:
        """Look at keys on both sides, and add those that differ for certain."""
        for _ in LOOKS.attempts():
            held = self.sink.held(self.info.name)
            with closing(self._rows(self._mark())) as rows:
                at_source = rows.look(keys)
            in_sink = self.side.rows.look(keys)
            now = self.sink.held(self.info.name)
            if held is not None and now is not None and held.position.id == now.position.id:
                break
        else:
            found.unsettled += len(keys)
            return
        missing = []
        for key in keys:
            if key in at_source and at_source[key] is None:
                found.in_flight += 1
                continue
            kind = classify(at_source.get(key), in_sink.get(key))
            if kind is Difference.EXTRA and (self.side.appends or self.side.keeps_deleted):
                continue
            if kind is Difference.MISSING or (kind is Difference.STALE and self.side.appends):
                missing.append(key)
            elif kind is not None:
                found.keys[key] = kind
        if missing:
            quarantined = set(self._writing.find_quarantined(self.info, self.columns, missing))
            found.quarantined += len(quarantined)
            found.keys |= {key: Difference.MISSING for key in missing if key not in quarantined}

    def explain_foreign_rows(self) -> str | None:
        """Why rows that the source does not have may be someone else's; None: every row came by this stream."""
        return self._writing.explain_foreign_rows(self.info)

    def close(self) -> None:
        """Release what the sink kept for the comparison."""
        self.side.rows.close()

    # ------------------------------------------------------------ the two sides

    def _compare_keys(self, rows: ComparedRows, range_: Range, found: Differences) -> None:
        differing = find_differences(rows.list_digests(range_), self.side.rows.list_digests(range_))
        # A row of someone else may have no value where the stream always has one: it cannot be looked for.
        keys = [key for key in differing if None not in key]
        found.in_flight += len(differing) - len(keys)
        if keys:
            self.look_again(keys, found)

    def _find_end(self, rows: ComparedRows, after: Key | None, left: int | None) -> Key | None:
        sizes = [size for size in (rows.window_rows, left) if size is not None]
        return rows.find_end(after, max(1, min(sizes))) if sizes else None

    def _mark(self) -> Mark:
        held = self.sink.held(self.info.name)
        mark = held.position.mark if held else None
        if mark is None:
            raise not_comparable(self.info.name, "nothing was delivered yet", "penstock run FILE")
        return mark

    def _rows(self, mark: Mark) -> ComparedRows:
        return self._reading.compared_rows(self.info.name, self.content, mark, self.columns)


def _side(rows: ComparedRows) -> Side:
    return Side(rows.summarize, rows.find_cuts)


def require_capabilities(info: StreamInfo, source: Source, sink: Sink) -> tuple[ComparingSource, ComparingSink]:
    """Both sides as those that can be compared; NotComparable if one cannot."""
    reading, writing = capability(source, ComparingSource), capability(sink, ComparingSink)
    if reading is None:
        raise not_comparable(info.name, "this source cannot be asked for rows by key")
    if writing is None:
        raise not_comparable(info.name, "this sink cannot be asked for rows by key")
    return reading, writing
