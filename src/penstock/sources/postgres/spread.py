"""Where a long range of a key can be cut, by the statistics that the server keeps: no row is counted or read.

What statistics say is a guess. A cut is a key that is there all the same, so a wrong guess makes a slice larger or
smaller and loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

from psycopg import sql

from penstock.core.ranges import Key, Range
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import load_statement, to_text, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.catalog import ROOM
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.marks import bound
from penstock.sources.postgres.plan import Reach, Walk, key_range

#: up to here rows are counted
COUNTED = 10_000
#: a table whose numbers were never analyzed is taken for evenly spread if it fills at least this share of them
DENSE = 0.25
#: values that are more common than this share of a slice cannot be cut, nor can a column that is mostly such values
COMMON = 0.25
MOSTLY = 0.5

_NUMBER = "({0})::float8"
# What a float8 cannot hold has no number: casting it would be an error.
_NUMERIC = "CASE WHEN {0} = 0 OR abs({0}) BETWEEN 1e-300 AND 1e300 THEN ({0})::float8 END"
_SINCE = "extract(epoch FROM {0})::float8"
_BITS = "('x' || left(replace(({0})::text, '-', ''), 13))::bit(52)::bigint::float8"
#: how a value becomes a number that grows with it, by type
NUMBERS = {
    **dict.fromkeys(("smallint", "integer", "bigint", "real", "double precision"), _NUMBER),
    **dict.fromkeys(("date", "timestamp without time zone", "timestamp with time zone"), _SINCE),
    "numeric": _NUMERIC,
    "uuid": _BITS,
}
_WHOLE = "trunc({low}::numeric + ({high}::numeric - {low}::numeric) * {share})"
_MIXED = "{low} * (1 - {share}) + {high} * {share}"
_AFTER = "{low} + ({high} - {low}) * {share}::float8"
#: how a value between two others is made, by type; a uuid's is made here
_PLACES = {
    **dict.fromkeys(("smallint", "integer", "bigint"), _WHOLE),
    **dict.fromkeys(("numeric", "real", "double precision"), _MIXED),
    "date": "{low} + (({high} - {low}) * {share})::int",
    "timestamp without time zone": _AFTER,
    "timestamp with time zone": _AFTER,
}
_INTEGERS = ("smallint", "integer", "bigint")
#: values that are no place between others
_ENDLESS = ("infinity", "Infinity", "NaN")


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the first column's values, of which it is known how many rows there are."""

    low: str
    high: str
    rows: float


@dataclass(frozen=True, slots=True)
class Spread:
    """How the rows of a range lie along the first column of its key."""

    steps: tuple[Step, ...]
    #: whether a place inside a step can be named
    divisible: bool
    #: rows of the whole table, as the planner expects them
    table: float = 0.0

    @property
    def rows(self) -> float:
        return sum(step.rows for step in self.steps)

    def places(self, wanted: Sequence[float]) -> Iterator[tuple[Step, float]]:
        """Where so many rows have gone by: a step, and the share of it."""
        steps, passed = iter(self.steps), 0.0
        step = next(steps)
        for rows in wanted:
            while passed + step.rows < rows and (following := next(steps, None)):
                passed, step = passed + step.rows, following
            share = min(1.0, max(0.0, (rows - passed) / step.rows)) if step.rows else 1.0
            yield step, share if self.divisible else 1.0


def reach(session: Session, stream: str, content: TableContent, whole: Range, walk: Walk) -> Reach | None:
    """How far the next slice of a range goes; None: the statistics do not serve, one must walk."""
    spread = _spread(session, stream, content, whole, walk)
    if spread is None:
        return None
    slices = max(1, round(spread.rows / walk.most))
    each = spread.rows / slices
    parts = max(1, min(walk.parts, int(each // walk.least)))
    wanted = [each * number / parts for number in range(1, parts + 1)]
    if slices == 1:
        wanted.pop()
    found = _probed(session, stream, content, whole, list(spread.places(wanted))) if wanted else []
    if slices == 1:
        # What came since the statistics were made is taken for too much; the table does not hold more than it has.
        return Reach(tuple(found), None, round(min(each, spread.table)))
    # Not one row lies so low: there may be any number above.
    return Reach(tuple(found[:-1]), found[-1], round(each)) if found else None


def left(session: Session, stream: str, content: TableContent, whole: Range) -> int:
    """Rows of a range up to the end of the table: a few are counted along the index, many are estimated."""
    keys = [sql.Identifier("t", column.column) for column in content.key]
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} AS t WHERE {} ORDER BY {} LIMIT {}) x").format(
        content.table.sql, key_range(content.key, whole), sql.SQL(", ").join(keys), sql.Literal(COUNTED)
    )
    [[count]] = session.rows(query, table=str(content.table), stream=stream)
    if count < COUNTED or whole.after is None:
        return int(count) if count < COUNTED else expected(session, stream, content)
    above = sql.SQL("{} > {}").format(keys[0], bound(content.key, whole.after)[0])
    return max(int(count), expected(session, stream, content, above))


def expected(session: Session, stream: str, content: TableContent, where: sql.Composable | None = None) -> int:
    """Rows of a table, or those for which something is true, as the server's planner expects them."""
    query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT 1 FROM {} AS t WHERE {}").format(
        content.table.sql, where or sql.SQL("true")
    )
    [[said]] = session.rows(query, table=str(content.table), stream=stream)
    return int(said[0]["Plan"]["Plan Rows"])


def _spread(session: Session, stream: str, content: TableContent, whole: Range, walk: Walk) -> Spread | None:
    said = _said(session, stream, content, whole)
    if said["first"] is None:
        return Spread((), divisible=False)
    rows, type_ = float(expected(session, stream, content)), without_modifier(content.key[0].type)
    if not said["buckets"]:
        span = said["last_number"] - said["lowest_number"] if type_ in _INTEGERS and len(content.key) == 1 else None
        if span is None or span * DENSE > rows:
            return None
        # Numbers that are told apart are no more than there are from the lowest to the last.
        share = _share(said["first_number"], said["last_number"], span)
        rows = min(rows, span + 1) * (share or 1.0)
        return Spread((Step(said["first"], said["last"], rows),), divisible=True, table=rows)
    if (said["most_common"] or 0.0) * rows > walk.most * COMMON or (said["common"] or 0.0) > MOSTLY:
        return None
    spread = Spread(tuple(_steps(said, rows)), divisible=type_ in NUMBERS, table=rows)
    coarse = not spread.divisible and max(step.rows for step in spread.steps) > walk.most
    return None if coarse else spread


def _said(session: Session, stream: str, content: TableContent, whole: Range) -> dict[str, Any]:
    lead, keys = content.key[0], [sql.Identifier("t", column.column) for column in content.key]
    number = sql.SQL(NUMBERS.get(without_modifier(lead.type), "NULL::float8"))
    query = load_statement(ROOM, "spread").format(
        lead=keys[0],
        table=content.table.sql,
        whole=key_range(content.key, whole),
        key=sql.SQL(", ").join(keys),
        backwards=_backwards(keys),
        type=sql.SQL(lead.type),
        schema=sql.Literal(content.table.schema),
        name=sql.Literal(content.table.name),
        column=sql.Literal(lead.column),
        regclass=sql.Literal(to_text(content.table.sql)),
        number_of_place=number.format(sql.SQL("b.place::") + sql.SQL(lead.type)),
        number_of_lowest=number.format(sql.SQL("ends.lowest")),
        number_of_first=number.format(sql.SQL("ends.first")),
        number_of_last=number.format(sql.SQL("ends.last")),
    )
    [[said]] = session.rows(query, table=str(content.table), stream=stream)
    found: dict[str, Any] = said
    return found


def _steps(said: Mapping[str, Any], rows: float) -> Iterator[Step]:
    """From the first value of the range to its last, over the histogram's bounds between them.

    Each bucket holds as many rows. What lies outside of all buckets has come since they were made: it is taken for
    too much rather than too little, so that slices become smaller and not larger.
    """
    bucket = rows / said["buckets"]
    ends = ((said["first"], said["first_number"]), (said["last"], said["last_number"]))
    for low, high in pairwise((ends[0], *said["inside"], ends[1])):
        under = said["before"] if low is ends[0] else low
        over = said["behind"] if high is ends[1] else high
        if under and over:
            share = _share(low[1], high[1], _between(under[1], over[1]))
            yield Step(low[0], high[0], bucket * (1.0 if share is None else min(1.0, share)))
        else:
            share = _share(low[1], high[1], said["span"]) or 0.0
            yield Step(low[0], high[0], min(rows, max(bucket, said["changed"] or 0, rows * share)))


def _between(low: Any, high: Any) -> float | None:
    """The distance of two numbers; None where there are none, or no finite ones, which JSON has as texts."""
    known = all(isinstance(number, int | float) for number in (low, high))
    return float(high - low) if known else None


def _share(low: Any, high: Any, of: Any) -> float | None:
    """How much of a distance lies between two numbers; None where that is not known."""
    span = _between(low, high)
    return span / of if span is not None and isinstance(of, int | float) and of else None


def _probed(
    session: Session, stream: str, content: TableContent, whole: Range, places: Iterable[tuple[Step, float]]
) -> list[Key]:
    """Keys that are there, at or below each of some places; fewer where two have the same."""
    keys = [sql.Identifier("t", column.column) for column in content.key]
    type_ = content.key[0].type
    values = [
        sql.SQL("({}, {})").format(sql.Literal(number), _place(step, share, type_))
        for number, (step, share) in enumerate(places)
    ]
    query = load_statement(ROOM, "probes").format(
        places=sql.SQL(", ").join(values),
        key=sql.SQL(", ").join(keys),
        texts=sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in keys),
        table=content.table.sql,
        lead=keys[0],
        after=key_range(content.key, Range(whole.after, None)),
        upto=key_range(content.key, Range(None, whole.upto)),
        backwards=_backwards(keys),
    )
    found = session.rows(query, table=str(content.table), stream=stream)
    return list(dict.fromkeys(tuple(texts) for texts in found))


def _place(step: Step, share: float, type_: str) -> sql.Composed:
    """A value inside a step, as SQL; its upper end where none can be made."""
    if share >= 1.0 or any(end.lstrip("-") in _ENDLESS for end in (step.low, step.high)):
        return typed_literal(step.high, type_)
    if type_ == "uuid":
        start, end = (UUID(text).int for text in (step.low, step.high))
        return typed_literal(str(UUID(int=start + int((end - start) * Decimal(share)))), type_)
    low, high = typed_literal(step.low, type_), typed_literal(step.high, type_)
    between = sql.SQL(_PLACES[without_modifier(type_)]).format(
        low=low, high=high, share=sql.Literal(Decimal(f"{share:.15f}"))
    )
    return sql.SQL("({})::{}").format(between, sql.SQL(type_))


def _backwards(keys: Iterable[sql.Identifier]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("{} DESC").format(key) for key in keys)
