"""How far a slice goes and where it is cut into parts, by walking along an index: exact, and as long as the slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.ranges import Key, Range
from penstock.errors import StreamRefused
from penstock.links.postgres.column_sql import size_expression
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import join_identifiers, load_statement, row_of, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.ports import Budget
from penstock.sources.postgres.catalog import ROOM
from penstock.sources.postgres.content import KeyColumn, TableContent, form_of
from penstock.sources.postgres.marks import bound

#: a part is not worth a worker of its own below this many bytes, or this many rows if they are small
LEAST_PART_BYTES = 8 << 20
LEAST_PART_ROWS = 50_000
#: parts for each worker, so that one slow part does not keep the others waiting
PARTS_PER_WORKER = 2
#: steps along the index, or this many for each part; a slice that turns out short can still be cut evenly
STEPS = 256
STEPS_PER_PART = 4
#: rows that a first estimate of the size is made from
SAMPLE = 100

#: values that are greater than all to come, by type: a mark there would hide every row that follows
_ENDLESS = {
    "infinity": ("date", "timestamp without time zone", "timestamp with time zone"),
    "Infinity": ("numeric", "real", "double precision"),
    "NaN": ("numeric", "real", "double precision"),
}


def key_range(columns: Sequence[KeyColumn], range_: Range) -> sql.Composed:
    """The rows of a range of table `t`, as row comparisons: the form that can be looked up in an index."""
    members = row_of([sql.Identifier("t", column.column) for column in columns])
    sides = ((">", range_.after), ("<=", range_.upto))
    comparisons = [
        sql.SQL("{} {} {}").format(members, sql.SQL(sign), row_of(bound(columns, key)))
        for sign, key in sides
        if key is not None
    ]
    return sql.SQL(" AND ").join(comparisons) if comparisons else sql.SQL("{}").format(sql.SQL("true"))


def cursor_bounds(columns: Sequence[KeyColumn], range_: Range) -> list[sql.Composed]:
    """What already follows from the range about the cursor alone, for the planner's sake.

    It takes the two sides of a row comparison for independent, and so expects a quarter of the table from a
    narrow range in its middle: enough to scan all of it.
    """
    if range_.after is None or range_.upto is None or len(columns) == 1:
        return []
    low, high = bound(columns, range_.after)[0], bound(columns, range_.upto)[0]
    return [sql.SQL("{} BETWEEN {} AND {}").format(sql.Identifier("t", columns[0].column), low, high)]


@dataclass(frozen=True, slots=True)
class Top:
    """The highest row that is visible."""

    key: Key
    #: the server's clock when it was seen
    clock: str


def highest(
    session: Session, stream: str, content: TableContent, after: Key | None = None, below: str | None = None
) -> Top | None:
    """The greatest key now, after a mark and with a cursor below a time; None if there is no such row.

    A probe of the index. How far it may be read, the horizon says.
    """
    cursor = sql.Identifier("t", content.key[0].column)
    keys = [sql.Identifier("t", column.column) for column in content.key]
    conditions = [sql.SQL("{} IS NOT NULL").format(cursor)]
    if after is not None:
        conditions.append(key_range(content.key, Range(after, None)))
    if below is not None:
        conditions.append(
            sql.SQL("{} < {}").format(cursor, typed_literal(below, without_modifier(content.key[0].type)))
        )
    query = sql.SQL("SELECT {}, clock_timestamp()::text FROM {} AS t WHERE {} ORDER BY {} LIMIT 1").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in keys),
        content.table.sql,
        sql.SQL(" AND ").join(conditions),
        sql.SQL(", ").join(sql.SQL("{} DESC").format(key) for key in keys),
    )
    rows = session.rows(query, table=str(content.table), stream=stream)
    if not rows:
        return None
    *key, clock = rows[0]
    if without_modifier(content.key[0].type) in _ENDLESS.get(key[0], ()):
        raise StreamRefused(
            f"{content.table} has rows whose cursor {content.key[0].column} is {key[0]}: "
            "no row written later would ever come after them",
            next_step=f"correct the rows where {content.key[0].column} is {key[0]}",
            stream=stream,
        )
    return Top(tuple(key), clock)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a slice goes, and where it is cut into parts."""

    #: inner bounds, in order
    cuts: tuple[Key, ...]
    #: where it ends; None: at the end of the range
    upto: Key | None
    #: rows to expect
    rows: int
    #: whether they were counted
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A key at which a slice may be cut, and how many of its rows lie up to it."""

    key: Key
    rows: int


@dataclass(frozen=True, slots=True)
class Walk:
    """How to walk along the index: at most this far, in steps of this many rows."""

    most: int
    step: int
    #: rows that are worth a part of their own
    least: int
    #: parts that the workers can use
    parts: int
    row_bytes: int

    @classmethod
    def of(cls, budget: Budget, row_bytes: int, parts: int | None = None) -> Walk:
        if budget.rows is not None and budget.rows < 1:
            raise ValueError("a slice needs a budget of at least one row")
        most = max(1, budget.bytes // row_bytes)
        if budget.rows is not None:
            most = min(most, budget.rows)
        parts = parts or parts_for(budget.workers)
        least = max(1, min(LEAST_PART_ROWS, LEAST_PART_BYTES // row_bytes))
        step = min(most, max(least, -(-most // max(STEPS, parts * STEPS_PER_PART))))
        return cls(most=most, step=step, least=least, parts=parts, row_bytes=row_bytes)

    def chosen(self, cuts: Sequence[Cut], rows: int) -> list[Cut]:
        """The cuts that make about equal parts, as many as are worth it."""
        parts = max(1, min(self.parts, rows // self.least))
        wanted = [rows * part // parts for part in range(1, parts)]
        nearest = [min(cuts, key=lambda cut: abs(cut.rows - want)) for want in wanted if cuts]
        return sorted(set(nearest), key=lambda cut: cut.rows)


def parts_for(workers: int, connections: int | None = None) -> int:
    """Parts that the workers can use; no more than may be read at the same time, where that is less."""
    if connections is not None and connections < workers:
        return connections
    return max(1, workers) * PARTS_PER_WORKER


def walk_on(session: Session, stream: str, content: TableContent, whole: Range, walk: Walk) -> Reach | None:
    """How far the next slice of a range goes, by walking; None: the range has no row."""
    cuts, rest = walked(session, stream, content, whole, walk)
    if not cuts and not rest:
        return None
    rows = (cuts[-1].rows if cuts else 0) + rest
    # Fewer rows than wanted: then these are all that the range has.
    upto = None if rows < walk.most else cuts[-1].key
    # What `where` leaves out is walked over too.
    exact = content.where is None
    return Reach(tuple(cut.key for cut in walk.chosen(cuts, rows) if cut.key != upto), upto, rows, exact)


def walked(session: Session, stream: str, content: TableContent, whole: Range, walk: Walk) -> tuple[list[Cut], int]:
    """The keys at every step, and how many rows follow the last; one statement, and so one snapshot."""
    aliases = [f"k{number}" for number in range(len(content.key))]
    keys = [sql.Identifier("t", column.column) for column in content.key]
    query = load_statement(ROOM, "cuts").format(
        names=sql.SQL(", ").join(map(sql.Identifier, aliases)),
        key=sql.SQL(", ").join(keys),
        key_row=row_of(keys),
        cut=row_of([sql.Identifier("cuts", alias) for alias in aliases]),
        table=content.table.sql,
        whole=key_range(content.key, whole),
        below=key_range(content.key, Range(None, whole.upto)),
        step=sql.Literal(walk.step),
        most=sql.Literal(walk.most),
        texts=sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(alias)) for alias in aliases),
        nothing=sql.SQL(", ").join([sql.SQL("NULL::text")] * len(aliases)),
    )
    rows = session.rows(query, table=str(content.table), stream=stream)
    cuts = sorted((Cut(tuple(texts), count) for count, *texts in rows if texts[0] is not None), key=lambda c: c.rows)
    [rest] = [count for count, *texts in rows if texts[0] is None]
    return cuts, rest


def sample(session: Session, stream: str, content: TableContent, whole: Range) -> int | None:
    """Bytes of a row as Arrow, from the first rows of a range; None if it has none."""
    query = sql.SQL("SELECT avg({})::bigint FROM (SELECT {} FROM {} AS t WHERE {} ORDER BY {} LIMIT {}) x").format(
        sql.SQL(" + ").join(size_expression(column.name, form_of(column)) for column in content.columns),
        join_identifiers(column.name for column in content.columns),
        content.table.sql,
        key_range(content.key, whole),
        sql.SQL(", ").join(sql.Identifier("t", column.column) for column in content.key),
        sql.Literal(SAMPLE),
    )
    answer: int | None = session.rows(query, table=str(content.table), stream=stream)[0][0]
    return answer


def cuts_of(plan: Document) -> list[Key]:
    """The inner bounds that a plan has kept; ValueError if it is not one of ours."""
    cuts: Any = plan.get("cuts")
    if not isinstance(cuts, list) or not all(isinstance(key, list) for key in cuts):
        raise ValueError("the plan of the slice has no cuts")
    return [tuple(key) for key in cuts]
