"""Whether a table is still the one that a mark was made in. If not, rows below the mark may be new, and never come."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from psycopg import sql

from penstock.core.ranges import Key
from penstock.core.slices import Kind, Slice
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import quote, to_text
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.altered import refused
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.identity import Sequence, TableIdentity
from penstock.sources.postgres.marks import along_the_cursor

_MISSED = "Rows below the mark may be new, and would never be read"
#: types of a cursor that a sequence can number
_NUMBERS = ("smallint", "integer", "bigint", "numeric")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why rows below a mark may be new."""

    what: str
    #: a statement that would settle it; None: there is none
    remedy: str | None = None


def doubt(
    was: TableIdentity | None, reach: Key | None, content: TableContent, now: TableIdentity, continues: str | None
) -> Doubt | None:
    """Why rows below a mark may be new; None: nothing says so, or the user vouches for the table as it is.

    `was` is the table that the mark was made in (None: there is no mark yet), `reach` how far it is read.
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


def _sequence_doubt(was: Sequence | None, reach: Key | None, content: TableContent, now: Sequence) -> Doubt | None:
    cursor = content.key[0]
    of = f"the sequence {now.name} of {cursor.column} of {content.table}"
    if was and was.file != now.file:
        how = "TRUNCATE ... RESTART IDENTITY, ALTER SEQUENCE, another type of the column"
        return Doubt(f"{of} was restarted or altered since the mark was made ({how}). {_MISSED}")
    last = None if now.last is None else Decimal(now.last)
    if was and was.last is not None and now.told and (last is None or last < Decimal(was.last)):
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


def stopped(stream: str, found: Doubt, now: TableIdentity) -> StreamRefused:
    """What to do about a table that is in doubt."""
    remedy = f"raise the sequence with {found.remedy} or " if found.remedy else ""
    return StreamRefused(
        found.what,
        next_step=f"{remedy}run `penstock state reset FILE --stream {stream}` to read the table from the beginning; "
        f"or, if no row below the mark is new, set `continues: {now.token}` on the stream",
        stream=stream,
    )


def check_open(slice_: Slice, content: TableContent, now: TableIdentity, continues: str | None) -> None:
    """StreamRefused if an open slice was planned in another table of that name."""
    mark = along_the_cursor(slice_.upto) if slice_.kind is Kind.ROWS else None
    if mark is None or mark.table is None or mark.table.oid == now.oid or continues == now.token:
        return
    error = refused(
        slice_.stream,
        f"it reads {content.table} with oid {mark.table.oid}, and the table of that name has oid {now.oid} now: it was "
        "replaced",
        "put the first table back",
    )
    error.next_step += (
        f"; or drop it by `penstock state recover FILE --stream {slice_.stream}`, then read the new table from the "
        f"beginning with `penstock state reset FILE --stream {slice_.stream}`"
    )
    raise error
