"""Which way a first load goes: by ranges of a key, by blocks, or along the cursor; and why one is not possible."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, quote
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.catalog import Index, Table, describe
from penstock.sources.postgres.content import KeyColumn, TableContent, names
from penstock.sources.postgres.horizon.proofs import prove
from penstock.sources.postgres.load.pieces import Stream
from penstock.sources.postgres.refresh import TID_RANGES
from penstock.sources.postgres.relations import KINDS
from penstock.sources.postgres.shape import Shape

#: a table of fewer bytes is read along the cursor: it takes a moment either way
LARGE = 64 << 20
#: how much better the cursor must follow the order on the disk than the key does to be taken instead of it
BETTER = 0.1


@dataclass(frozen=True, slots=True)
class Way:
    """How a first load goes."""

    #: keys, blocks or cursor
    by: str
    #: the columns whose ranges are read; () for blocks and for the cursor
    columns: tuple[KeyColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a way cannot be gone, and what to do about it."""

    what: str
    next_step: str


ALONG_THE_CURSOR = Way("cursor")


def way(stream: Stream, shape: Shape) -> Way:
    """The way that a user wishes for, or the best; StreamRefused if a wish cannot be met."""
    wish = stream.first_load
    if wish == "cursor" or (wish == "auto" and shape.bytes < LARGE):
        return ALONG_THE_CURSOR
    found = by_blocks(stream, shape) if wish == "blocks" else by_keys(stream, shape)
    if wish == "auto":
        return found if isinstance(found, Way) and _follows(stream, found) else ALONG_THE_CURSOR
    if isinstance(found, Obstacle):
        raise StreamRefused(f"`first_load: {wish}`: {found.what}", next_step=found.next_step, stream=stream.name)
    return found


def by_keys(stream: Stream, shape: Shape) -> Way | Obstacle:
    """By ranges of the primary key, or else of the tiebreaker; along the cursor where that is the same."""
    session, content = stream.session, stream.content
    table = describe(session, content.table, names(content.key), stream=stream.name)
    index = _load_index(table, content) if table else None
    if table is None or index is None:
        return Obstacle(
            f"{content.table} has no primary key, nor an index that proves its tiebreaker unique",
            "give the table a primary key, or set `first_load: cursor`",
        )
    if index.columns[0] == content.key[0].column:
        return ALONG_THE_CURSOR
    if not set(index.columns) <= set(names(content.key)):
        table = describe(session, content.table, index.columns, stream=stream.name) or table
    columns = [column for name in index.columns if (column := table.column(name))]
    for column in columns:
        if column.order != "built-in":
            return Obstacle(
                f"{column.name} of {content.table} has a type, {column.type}, without an order of Postgres' own",
                "set `first_load: cursor`",
            )
        if not column.may_select:
            return Obstacle(
                f"user {session.user} may not read {column.name} of {content.table}",
                f"GRANT SELECT ({quote(column.name)}) ON {_sql(content.table)} TO {quote(session.user)}; "
                "or set `first_load: cursor`",
            )
    found = Way("keys", tuple(KeyColumn(column.name, column.type) for column in columns))
    return (_by_leaves(session, content, shape) or found) if shape.kind == "p" else found


def _by_leaves(session: Session, content: TableContent, shape: Shape) -> Way | Obstacle | None:
    """Why the partitions cannot be read one by one; None: they can."""
    if not shape.leaves:
        return ALONG_THE_CURSOR
    if shape.row_security:
        return Obstacle(
            f"what row-level security shows of {content.table} is not what it shows of each partition",
            "set `first_load: cursor`",
        )
    hidden = next((leaf.name for leaf in shape.leaves if not leaf.may_select), content.table)
    if shape.may_select and hidden == content.table:
        return None
    return Obstacle(
        f"user {session.user} may not read {hidden} by its own name, and partitions are loaded one by one",
        f"GRANT SELECT ON {_sql(hidden)} TO {quote(session.user)}; or set `first_load: cursor`",
    )


def by_blocks(stream: Stream, shape: Shape) -> Way | Obstacle:
    """By blocks of the table: only where no update leaves the cursor as it is.

    Such an update may move a row from a block that is still to be read into one that was.
    """
    session, content, keys = stream.session, stream.content, "set `first_load: keys`"
    cursor = content.key[0].column
    if shape.kind != "r":
        kind = KINDS.get(shape.kind, "relation")
        return Obstacle(f"{content.table} is a {kind}; only a plain table is read by blocks", keys)
    if session.version < TID_RANGES:
        what = f"PostgreSQL {session.version} cannot look up a range of blocks; {TID_RANGES} and later can"
        return Obstacle(what, keys)
    if not shape.may_select:
        return Obstacle(
            f"user {session.user} may read columns of {content.table}, but not the table as a whole",
            f"GRANT SELECT ON {_sql(content.table)} TO {quote(session.user)}; or {keys}",
        )
    if not stream.waits:
        what = "with `horizon: {method: off}` a row that is updated meanwhile could be missed in every version"
        return Obstacle(what, f"remove `method: off`, or {keys}")
    if without_modifier(content.key[0].type) != "timestamp with time zone":
        return Obstacle(
            f"{cursor} is {content.key[0].type}; only of a timestamptz it can be proven that every update raises it",
            keys,
        )
    if prove(session, stream.name, content).keeper is None:
        return Obstacle(
            f"no trigger of {content.table} sets {cursor} with every update, and an update that leaves it as it is "
            "could move a row out of sight (a trigger with a WHEN clause, or a function with a condition, lets updates "
            "pass)",
            f"{keys}, or create a trigger BEFORE UPDATE FOR EACH ROW that always sets {cursor} to now()",
        )
    return Way("blocks")


def _load_index(table: Table, content: TableContent) -> Index | None:
    """The index whose key the load goes by: unique, never NULL, in an order that a range can be looked up in."""
    usable = [
        index
        for index in table.indexes
        if index.unique
        and (index.ascending or index.descending)
        and all((column := table.column(name)) and column.not_null for name in index.columns)
    ]
    tiebreaker = set(names(content.key[1:]))
    return next(
        (index for index in usable if index.primary),
        next((index for index in usable if set(index.columns) == tiebreaker), None),
    )


def _follows(stream: Stream, found: Way) -> bool:
    """Whether the key follows the order on the disk at least as well as the cursor does, as the statistics have it.

    If not, each range of it has its rows all over the table, and the table would be fetched many times.
    """
    if found.by != "keys":
        return True
    table = stream.content.table
    query = sql.SQL(
        "SELECT attname::text, abs(correlation) FROM pg_stats "
        "WHERE schemaname = {} AND tablename = {} AND NOT inherited"
    ).format(sql.Literal(table.schema), sql.Literal(table.name))
    said = dict(stream.session.rows(query, table=str(table), stream=stream.name))
    key, cursor = (said.get(columns[0].column) for columns in (found.columns, stream.content.key))
    return key is None or cursor is None or key + BETTER >= cursor


def _sql(name: TableName) -> str:
    """A table in SQL that a user is asked to run."""
    return name.quoted
