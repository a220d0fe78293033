"""Chooses how a first load reads a table: by ranges of a key, by blocks, or along the cursor."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from penstock.errors import StreamRefused
from penstock.links.postgres.literals import quote
from penstock.links.postgres.tables import KINDS, Index, Table
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.content import KeyColumn, TableContent, column_names
from penstock.sources.postgres.horizon.proof import prove
from penstock.sources.postgres.refresh import TID_RANGE_VERSION
from penstock.sources.postgres.stream import TableStream

#: a smaller table is read along the cursor: that is quick anyway
MIN_PARALLEL_BYTES = 64 << 20
#: the cursor must be this much better correlated with the order on disk than the key to be used instead of it
MIN_CORRELATION_GAIN = 0.1


@dataclass(frozen=True, slots=True)
class LoadMethod:
    """How a first load reads a table."""

    #: keys, blocks or cursor
    by: str
    #: the columns whose ranges are read; () for blocks and for the cursor
    columns: tuple[KeyColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a method is not possible, and the remedy."""

    what: str
    next_step: str


ALONG_CURSOR = LoadMethod("cursor")


def choose_method(stream: TableStream, table: Table) -> LoadMethod:
    """The configured method, or the best; StreamRefused if the configured one is not possible.

    `table` is described with its storage.
    """
    wish = stream.options.first_load
    if wish == "cursor" or (wish == "auto" and table.bytes < MIN_PARALLEL_BYTES):
        return ALONG_CURSOR
    method = try_blocks(stream, table) if wish == "blocks" else try_keys(stream, table)
    if wish == "auto":
        return method if isinstance(method, LoadMethod) and _follows_disk_order(stream, method) else ALONG_CURSOR
    if isinstance(method, Obstacle):
        raise StreamRefused(f"`first_load: {wish}`: {method.what}", next_step=method.next_step, stream=stream.name)
    return method


def try_keys(stream: TableStream, table: Table) -> LoadMethod | Obstacle:
    """By ranges of the primary key, or else of the tiebreaker; along the cursor if that is the same."""
    user, content = stream.session.user, stream.content
    index = _choose_index(table, content)
    if index is None:
        return Obstacle(
            f"{content.table} has no primary key, nor an index that proves its tiebreaker unique",
            "give the table a primary key, or set `first_load: cursor`",
        )
    if index.columns[0] == content.key[0].column:
        return ALONG_CURSOR
    ordered = stream.describe(index.columns) or table
    columns = [column for name in index.columns if (column := ordered.column(name))]
    for column in columns:
        if column.order != "built-in":
            return Obstacle(
                f"{column.name} of {content.table} has a type, {column.type}, without a built-in order",
                "set `first_load: cursor`",
            )
        if not column.may_select:
            return Obstacle(
                f"user {user} may not read {column.name} of {content.table}",
                f"GRANT SELECT ({quote(column.name)}) ON {content.table.quoted} TO {quote(user)}; "
                "or set `first_load: cursor`",
            )
    method = LoadMethod("keys", tuple(KeyColumn(column.name, column.type) for column in columns))
    return (_check_partitions(user, content, table) or method) if table.kind == "p" else method


def _check_partitions(user: str, content: TableContent, table: Table) -> LoadMethod | Obstacle | None:
    """Why the partitions cannot be read one by one; None: they can."""
    if not table.partitions:
        return ALONG_CURSOR
    if table.row_security:
        return Obstacle(
            f"row-level security may show other rows of {content.table} than of each partition",
            "set `first_load: cursor`",
        )
    hidden = next((each.name for each in table.partitions if not each.may_select), content.table)
    if table.may_select and hidden == content.table:
        return None
    return Obstacle(
        f"user {user} may not read {hidden} directly, and partitions are loaded one by one",
        f"GRANT SELECT ON {hidden.quoted} TO {quote(user)}; or set `first_load: cursor`",
    )


def try_blocks(stream: TableStream, table: Table) -> LoadMethod | Obstacle:
    """By blocks of the table: only if every update raises the cursor.

    Another update may move a row from a block that is still to be read into one that was read.
    """
    session, content, keys = stream.session, stream.content, "set `first_load: keys`"
    cursor = content.key[0]
    if table.kind != "r":
        kind = KINDS.get(table.kind, "relation")
        return Obstacle(f"{content.table} is a {kind}; only an ordinary table is read by blocks", keys)
    if session.version < TID_RANGE_VERSION:
        what = f"PostgreSQL {session.version} cannot look up a range of blocks; {TID_RANGE_VERSION} and later can"
        return Obstacle(what, keys)
    if not table.may_select:
        return Obstacle(
            f"user {session.user} may read columns of {content.table}, but not the table as a whole",
            f"GRANT SELECT ON {content.table.quoted} TO {quote(session.user)}; or {keys}",
        )
    if stream.horizon.method == "off":
        what = "with `horizon: {method: off}` a row that is updated meanwhile could be missed in every version"
        return Obstacle(what, f"remove `method: off`, or {keys}")
    if without_modifier(cursor.type) != "timestamp with time zone":
        return Obstacle(
            f"{cursor.column} is {cursor.type}; only for a timestamptz it can be proven that every update raises it",
            keys,
        )
    if prove(stream).stamping_trigger is None:
        return Obstacle(
            f"no trigger of {content.table} sets {cursor.column} with every update, and an update that leaves it "
            "unchanged could move a row out of sight (a trigger with a WHEN clause, or a function with a condition, "
            "lets updates pass)",
            f"{keys}, or create a trigger BEFORE UPDATE FOR EACH ROW that always sets {cursor.column} to now()",
        )
    return LoadMethod("blocks")


def _choose_index(table: Table, content: TableContent) -> Index | None:
    """The index for the load: unique, without NULLs, in an order in which a range can be looked up."""
    usable = [
        index
        for index in table.indexes
        if index.unique
        and index.ordered
        and all((column := table.column(name)) and column.not_null for name in index.columns)
    ]
    tiebreaker = set(column_names(content.key[1:]))
    return next(
        (index for index in usable if index.primary),
        next((index for index in usable if set(index.columns) == tiebreaker), None),
    )


def _follows_disk_order(stream: TableStream, method: LoadMethod) -> bool:
    """Whether the key follows the order on disk at least as well as the cursor, by the statistics.

    If not, the rows of each range are all over the table, and the table would be fetched many times.
    """
    if method.by != "keys":
        return True
    table = stream.content.table
    query = sql.SQL(
        "SELECT attname::text, abs(correlation) FROM pg_stats "
        "WHERE schemaname = {} AND tablename = {} AND NOT inherited"
    ).format(sql.Literal(table.schema), sql.Literal(table.name))
    correlations = dict(stream.rows(query))
    key, cursor = (correlations.get(columns[0].column) for columns in (method.columns, stream.content.key))
    return key is None or cursor is None or key + MIN_CORRELATION_GAIN >= cursor
