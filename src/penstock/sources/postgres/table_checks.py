"""Checks whether rows below a mark may have been missed: in a replaced table, after a restarted sequence, at ties.

A doubt about the table stops the stream. A cheap look at the mark's boundary only warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from psycopg import sql

from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import quote, row_of, to_text
from penstock.links.postgres.tables import NumberSequence
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres import marks
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.load import loading
from penstock.sources.postgres.marks import TableIdentity
from penstock.sources.postgres.stream import TableStream

_MISSED = "Rows below the mark may be new, and would never be read"
#: rows that share the mark's cursor value are counted up to this number; counting more would take too long
MAX_COUNTED_TIES = 1000
#: cursor types that a sequence can number
_NUMBERS = ("smallint", "integer", "bigint", "numeric")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why rows below a mark may be new."""

    what: str
    #: a statement that resolves it; None: there is none
    remedy: str | None = None


def find_doubt(
    was: TableIdentity | None, reach: Key | None, content: TableContent, now: TableIdentity, continues: str | None
) -> Doubt | None:
    """Why rows below a mark may be new; None: there is no sign of it, or the user has confirmed the table.

    `was` is the table that the mark was made in (None: there is no mark yet), `reach` the highest key to be read.
    """
    table = content.table
    if continues == now.token:
        return None
    if was and was.oid != now.oid:
        return Doubt(
            f"{table} is not the table that the mark was made in (its oid was {was.oid} and is {now.oid}): it was "
            f"dropped and created again, restored, or another table has its name now. {_MISSED}"
        )
    return _sequence_doubt(was.sequence if was else None, reach, content, now.sequence) if now.sequence else None


def _sequence_doubt(
    was: NumberSequence | None, reach: Key | None, content: TableContent, now: NumberSequence
) -> Doubt | None:
    cursor = content.key[0]
    of = f"the sequence {now.name} of {cursor.column} of {content.table}"
    if was and was.file != now.file:
        how = "TRUNCATE ... RESTART IDENTITY, ALTER SEQUENCE, another type of the column"
        return Doubt(f"{of} was restarted or altered since the mark was made ({how}). {_MISSED}")
    last = None if now.last is None else Decimal(now.last)
    if was and was.last is not None and now.readable and (last is None or last < Decimal(was.last)):
        at = "has given no number" if last is None else f"is at {last}"
        return Doubt(f"{of} was set back: it was at {was.last} when the mark was made, and {at} now. {_MISSED}")
    if last is not None and reach and without_modifier(cursor.type) in _NUMBERS and last < Decimal(reach[0]):
        column, *table = (sql.SQL(quote(each)) for each in (cursor.column, content.table.schema, content.table.name))
        highest = sql.SQL("SELECT max({}) FROM {}.{}").format(column, *table)
        return Doubt(
            f"{of} is at {last}, below the highest number that is read ({cursor.column} {reach[0]}): the rows that it "
            "numbers next would never be read",
            to_text(sql.SQL("SELECT setval({}, ({}));").format(sql.Literal(now.name), highest)),
        )
    return None


def doubt_error(stream: str, doubt: Doubt, now: TableIdentity) -> StreamRefused:
    remedy = f"raise the sequence with {doubt.remedy} or " if doubt.remedy else ""
    return StreamRefused(
        doubt.what,
        next_step=f"{remedy}run `penstock state reset FILE --stream {stream}` to read the table from the beginning; "
        f"or, if no row below the mark is new, set `continues: {now.token}` on the stream",
        stream=stream,
    )


def count_ties(stream: TableStream, key: Key) -> int | None:
    """Rows that share a key's cursor value, up to the key; None: too many to count, or the key has no tiebreaker."""
    content = stream.content
    cursor, *tiebreaker = content.key_sql
    if not tiebreaker:
        return None
    value, *rest = content.literals(key)
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} AS t WHERE {} = {} AND {} <= {} AND {} LIMIT {}) x").format(
        content.table.sql,
        cursor,
        value,
        row_of(tiebreaker),
        row_of(rest),
        content.filter_sql,
        sql.Literal(MAX_COUNTED_TIES + 1),
    )
    [[count]] = stream.rows(query)
    return int(count) if count <= MAX_COUNTED_TIES else None


def find_warnings(stream: TableStream, after: Mark, now: TableIdentity) -> Iterator[str]:
    """Warn an operator about rows that may have been missed below a mark."""
    content, mark = stream.content, marks.read(after)
    if not isinstance(mark, marks.KeysetMark) or mark.key is None:
        return
    cursor, value = content.key[0].column, mark.key[0]
    if mark.ties is not None:
        count = count_ties(stream, mark.key)
        late = (count if count is not None else MAX_COUNTED_TIES) - mark.ties
        if late > 0:
            rows = "1 row" if late == 1 else f"{late} rows"
            yield (
                f"{rows} with {cursor} {value} appeared below the mark after it was made (the same {cursor}, a lower "
                f"{', '.join(content.key_names[1:])}), and may have been missed; `penstock rewind FILE --stream "
                f"{stream.name} --to {to_text(sql.Literal(value))}` delivers every row from there again"
            )
    if mark.table and mark.table.oid == now.oid and mark.table.file != now.file:
        top = stream.highest()
        if top and top.key != mark.key and stream.highest(after=mark.key) is None:
            yield (
                f"{content.table} was truncated or rewritten since the mark was made, and its highest {cursor}, "
                f"{top.key[0]}, lies below the mark ({cursor} {value}): rows inserted below the mark are not read; "
                f"{stream.reset_command} reads the table from the beginning"
            )
    skips_hidden = stream.options.hidden_partitions == "skip"
    if skips_hidden and mark.leaves and (hidden := loading.find_skipped_partitions(stream, mark)):
        yield (
            f"rows below the mark are left out (`hidden_partitions: skip`): user {stream.session.user} may not read "
            f"{', '.join(map(str, hidden))} directly, which was attached since"
        )
