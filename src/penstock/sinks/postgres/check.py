"""Check, before a slice is planned, whether a stream can be written into its table as it is configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.slices import Kind
from penstock.core.types import Plain
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.links.postgres.literals import TableName, load_statement, quote, to_text
from penstock.links.postgres.transactions import (
    REFUSAL_STATES,
    Identity,
    ServerState,
    VisibleFacts,
    read_server_state,
    server_query,
)
from penstock.links.postgres.types import without_modifier
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.columns import CHANGE, accepts_values, fits, has_changes, staged_columns
from penstock.sinks.postgres.create import find_wider
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.options import MAX_NAME_BYTES, StreamConfig
from penstock.sinks.postgres.staging import PLACE
from penstock.sinks.postgres.target import Target, TargetColumn, describe, holds_more, may_create_in

#: columns that a Postgres table can have
MAX_COLUMNS = 1600
#: Postgres' types of strings
_TEXTS = ("text", "character varying", "character")
#: the types that can hold the timestamp of a delete
_TIMES = ("timestamp with time zone", "timestamp without time zone", "date", *_TEXTS)
#: relkinds that are not tables
OTHER_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


def check_stream(connection: Connection, ledger: Ledger, config: StreamConfig, content: Content) -> None:
    """StreamRefused with everything that prevents the stream from being written."""
    name, table, is_refresh = config.info.name, config.table, config.info.kind is Kind.REFRESH
    target = describe(connection, table)
    has_ledger = ledger.exists(connection)
    entry = ledger.read_intact(connection, config) if has_ledger else None
    if has_state(connection, ledger.schema, ledger.pipeline, name):
        raise _refused(
            f"{table} has entities of this stream, in `mode: state`",
            f"set `mode: state` again; or begin again: penstock state reset FILE --stream {name}",
        )
    replaces = is_refresh and not (entry and entry.binding and entry.binding.refreshed)
    own_rows = ledger.count_created(connection, name) if entry and replaces else 0
    StreamCheck(
        config=config,
        content=content,
        target=target,
        may_create=may_create_in(connection, table.schema) if target is None else True,
        others=ledger.list_others(connection, name, table) if has_ledger else (),
        wider=find_wider(connection, content, Content.parse(entry.slice.content) if entry else None, target),
        role=connection.info.user,
        reads_target=target is not None and reads_table(connection, content, target.oid, is_refresh=is_refresh),
        has_foreign_rows=bool(replaces and target and target.is_readable and holds_more(connection, table, own_rows)),
    ).run()


@dataclass(frozen=True)
class StreamCheck:
    """One stream and its table."""

    config: StreamConfig
    content: Content
    #: None: it does not exist
    target: Target | None
    #: whether the role may create it; None: its schema does not exist
    may_create: bool | None
    #: other streams that write it, each as `pipeline/stream`
    others: Sequence[str]
    #: its columns that must become wider, each with the type that it needs
    wider: Sequence[tuple[str, str]]
    #: the role that writes
    role: str
    #: the stream reads it
    reads_target: bool
    #: it has rows that this stream did not write, and no full refresh has replaced them yet
    has_foreign_rows: bool

    def run(self) -> None:
        refuse_all(self._find_problems())

    @property
    def table(self) -> TableName:
        return self.config.table

    @property
    def columns(self) -> dict[str, str]:
        """The stream's columns, each with a description of its type."""
        return {column.name: column.described for column in self.content.columns if column.name != CHANGE}

    def _find_problems(self) -> Iterator[StreamRefused]:
        yield from self._check_names()
        yield from self._check_options()
        unsendable = list(problems_of([lambda: staged_columns(self.content)]))
        yield from unsendable
        if self.target is None:
            yield from self._check_creatable()
        elif not self.target.is_table:
            what = OTHER_KINDS.get(self.target.kind, "not a table")
            yield _refused(f"{self.table} is {what}", "name a table with `into` on the stream")
        else:
            yield from self._check_table(self.target)
            if not unsendable:
                yield from self._check_columns(self.target)
            yield from self._check_wider(self.target)

    def _check_names(self) -> Iterator[StreamRefused]:
        for what, name in (("table", self.table.name), *(("column", name) for name in self.columns)):
            if len(name.encode()) > MAX_NAME_BYTES:
                yield _refused(
                    f"the {what} name {name} is longer than the {MAX_NAME_BYTES} bytes that Postgres keeps",
                    "give it a shorter one: `into` for the table, `shape` for a column",
                )
        if PLACE in self.columns:
            yield _refused(f"the column name {PLACE} is reserved by penstock", "rename it with `shape` on the stream")
        # Staged rows have the column of their place, and one for deletes.
        columns = len(self.columns) + 1 + has_changes(self.content)
        if columns > MAX_COLUMNS:
            yield _refused(
                f"{len(self.columns):,} columns cannot be staged: with penstock's own there are {columns:,}, and a "
                f"Postgres table has at most {MAX_COLUMNS:,}",
                f"leave {columns - MAX_COLUMNS} or more of them out with `shape` on the stream",
            )

    def _check_options(self) -> Iterator[StreamRefused]:
        config, options = self.config, self.config.options
        if options.mode == "replace" and config.info.kind is not Kind.REFRESH:
            yield _refused(
                "`mode: replace` is for a full refresh, and this stream delivers only what has changed",
                "leave out its cursor, or use `mode: upsert`",
            )
        if options.early_for is not None:
            yield _refused("`early_for` has no meaning without `mode: state`", "leave it out")
        if options.mode == "upsert" and not config.key:
            yield _refused("`mode: upsert` needs a key", "set `key` on the stream")
        if options.newer_than is None and config.newer_than and config.newer_than not in self.columns:
            if config.newer_than == config.info.version:
                yield _refused(
                    f"a row may arrive after a newer version of it, and the column {config.newer_than}, which tells "
                    "the newest, is not shipped",
                    f"ship {config.newer_than}, or name another column with `newer_than`",
                )
                return
            yield _refused(
                f"the key ({', '.join(config.key)}) does not contain the primary key, so several rows of the "
                f"source can share it, and the cursor {config.newer_than}, which tells the newest of them, is not "
                "shipped",
                f"ship {config.newer_than}, or name another column with `newer_than`",
            )
        gone = absent(self.content)
        for option, name in (*config.required_columns, *(("volatile", name) for name in options.volatile)):
            if name not in self.columns:
                yield _refused(
                    f"`{option}` names the column {name}, which the stream does not have",
                    f"use one of: {', '.join(self.columns)}",
                )
            if option != "key" and not config.key:
                yield _refused(f"`{option}` has no meaning without a key", "set `key` on the stream")
            if option != "volatile" and name in gone:
                yield _refused(
                    f"`{option}` names the column {name}, which is gone at the source",
                    f"bring the column back, or change `{option}` on the stream",
                )
        yield from problems_of([lambda: refuse_unkeyed_deletes(config, self.content)])
        if options.deletes == "soft" and not options.deleted_at:
            yield _refused("`deletes: soft` needs the column that marks them", "set `deleted_at` on the stream")
        if options.deleted_at and options.deletes != "soft":
            yield _refused(
                "`deleted_at` has no meaning without `deletes: soft`", "set `deletes: soft`, or leave it out"
            )
        if options.deleted_at in self.columns:
            yield _refused(
                f"`deleted_at` names the column {options.deleted_at}, which the stream has too",
                "name another column with it",
            )

    def _check_creatable(self) -> Iterator[StreamRefused]:
        schema = self.table.schema
        if self.may_create is None:
            yield _refused(
                f"there is no schema {schema} for the table {self.table}",
                f"create it: CREATE SCHEMA {quote(schema)}; or name another with `schema` of the sink or `into` of "
                "the stream",
            )
        elif not self.config.options.create:
            yield _refused(f"there is no table {self.table}", "create it, or set `create: true` on the stream")
        elif not self.may_create:
            yield _refused(
                f"there is no table {self.table}, and the role {self.role} may not create it",
                f"run as the schema's owner: GRANT USAGE, CREATE ON SCHEMA {quote(schema)} TO {quote(self.role)};",
            )

    def _check_table(self, target: Target) -> Iterator[StreamRefused]:
        key, options = self.config.key, self.config.options
        if self.config.info.kind is Kind.REFRESH:
            yield from problems_of([lambda: refuse_foreign_streams(self.table, self.others)])
        if self.reads_target:
            yield _own_source(self.table, self.content)
            return
        if grants := self._find_missing_grants(target):
            lacks = " and ".join(f"{', '.join(rights)} on {what}" for rights, what, _ in grants)
            run = " ".join(f"GRANT {', '.join(rights)} ON {at} TO {quote(self.role)};" for rights, _, at in grants)
            yield _refused(f"the role {self.role} may not write: it lacks {lacks}", f"run as the owner: {run}")
        if not options.triggers and not (target.owned and target.owns_below):
            partitions = " and its partitions" if target.owned else ""
            yield _refused(
                f"`triggers: false` requires the role to own {self.table}{partitions}",
                "make the role of `url` a member of the owner, or leave `triggers` out",
            )
        if self.has_foreign_rows and not options.replace_existing:
            yield from problems_of([lambda: refuse_foreign_rows(self.table)])
        if key and all(name in self.columns for name in key) and not target.unique_by(key):
            yield _refused(
                f"{self.table} has no unique index on the key ({', '.join(key)})",
                f"create one: CREATE UNIQUE INDEX ON {self.table.quoted} ({', '.join(map(quote, key))}); or set "
                "`mode: append`",
            )

    def _find_missing_grants(self, target: Target) -> list[tuple[list[str], str, str]]:
        """The missing rights, each with what they are on: for messages, and for SQL."""
        is_refresh, is_keyed = self.config.info.kind is Kind.REFRESH, bool(self.config.key)
        deletes = self.content.changes and is_keyed and self.config.options.deletes == "hard"
        needed = [
            ("SELECT", True, target.may_select),
            ("INSERT", True, target.may_insert),
            ("UPDATE", is_keyed, target.may_update),
            ("DELETE", is_refresh or deletes, target.may_delete),
        ]
        missing = [right for right, is_needed, is_granted in needed if is_needed and not is_granted]
        schema = self.table.schema
        grants = [] if target.may_use_schema else [(["USAGE"], f"schema {schema}", f"SCHEMA {quote(schema)}")]
        return [*grants, (missing, str(self.table), self.table.quoted)] if missing else grants

    def _check_columns(self, target: Target) -> Iterator[StreamRefused]:
        sent = dict(staged_columns(self.content))
        for name, described in self.columns.items():
            column = target.column(name)
            if column is None:
                yield from self._check_addable(target, name)
            else:
                yield from self._check_column(column, described, sent[name])
        if (marker := self.config.deleted_at) and marker not in self.columns:
            column = target.column(marker)
            if column is None:
                yield from self._check_addable(target, marker)
            elif column.free not in _TIMES:
                yield _refused(
                    f"`deleted_at` names the column {marker}, which is {column.type} in {self.table}: it must be "
                    "timestamp with time zone, or not exist yet",
                    "name another column with it",
                )
        delivered = [name for name in self.columns if name not in absent(self.content)]
        for column in target.columns:
            if column.not_null and not column.filled and column.name not in delivered:
                yield _refused(
                    f"column {column.name} of {self.table} is NOT NULL without a default, and the stream does not have "
                    "it",
                    "give it a default, or let it be NULL",
                )

    def _check_column(self, column: TargetColumn, described: str, sent_as: str) -> Iterator[StreamRefused]:
        name, leave_out = column.name, "leave it out with `shape` on the stream"
        if column.generated:
            yield _refused(f"column {name} of {self.table} is generated and cannot be written", leave_out)
        elif column.identity == "a" and self.config.key and name not in self.config.key:
            yield _refused(
                f"column {name} of {self.table} is GENERATED ALWAYS AS IDENTITY and cannot be updated",
                f"{leave_out}, or make it GENERATED BY DEFAULT",
            )
        elif not accepts_values(column):
            yield _refused(
                f"column {name} of {self.table} is {column.type}, and Postgres does not accept values for this type",
                f"make it text, or {leave_out}",
            )
        elif not fits(sent_as, column) and name not in dict(self.wider):
            yield _refused(
                f"column {name} is {described} at the source and {column.type} in {self.table}, which cannot "
                "hold every value",
                "cast it with `shape` on the stream, or change the column's type",
            )
        elif name == self.config.newer_than and column.free in _TEXTS and not _is_string(described):
            yield _refused(
                f"`newer_than` compares by column {name}, which is {column.type} in {self.table} and {described} at "
                "the source: as text, 9 is newer than 10",
                f"make it {described} in {self.table}, or name another column with `newer_than`",
            )

    def _check_addable(self, target: Target, name: str) -> Iterator[StreamRefused]:
        if not self.config.options.create:
            yield _refused(
                f"{self.table} has no column {name}",
                "add it, set `create: true` on the stream, or leave it out with `shape`",
            )
        elif not target.owned:
            yield _refused(
                f"{self.table} has no column {name}, and only its owner may add it",
                "add it as the owner, or leave it out with `shape` on the stream",
            )

    def _check_wider(self, target: Target) -> Iterator[StreamRefused]:
        """A column that became wider at the source is widened here, if that is allowed."""
        if self.config.options.create and target.owned:
            return
        why = "only its owner may widen it" if self.config.options.create else "`create: false` leaves it as it is"
        for name, type_ in self.wider:
            yield _refused(
                f"column {name} became {type_} at the source, and is narrower in {self.table}: {why}",
                f"run as its owner: ALTER TABLE {self.table.quoted} ALTER COLUMN {quote(name)} TYPE {type_};",
            )


def has_state(connection: Connection, schema: str, pipeline: str, stream: str) -> bool:
    """Whether a stream has been in mode `state`."""
    row = connection.execute(
        sql.SQL("SELECT to_regclass(format('%I.states', {}::text)) IS NOT NULL").format(sql.Literal(schema))
    ).fetchone()
    if not (row and row[0]):
        return False
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE (pipeline, stream) = ({}, {}))").format(
        sql.Identifier(schema, "states"), sql.Literal(pipeline), sql.Literal(stream)
    )
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


# ---------------------------------------------------------------- checks that a commit repeats


def refuse_unkeyed_deletes(config: StreamConfig, content: Content) -> None:
    """StreamRefused if deletes would be inserted as rows."""
    if has_changes(content) and not config.key and config.options.deletes == "hard":
        raise _refused(
            "the stream delivers deletes, and without a key none of them can find its row: each would be inserted as a "
            "row of NULLs",
            "set `mode: upsert` and `key` on the stream; or leave deletes out with `deletes: ignore`; or insert a row "
            "for each, marked in a column of its own, with `deletes: soft` and `deleted_at`",
        )


def refuse_foreign_streams(table: TableName, others: Sequence[str]) -> None:
    """StreamRefused if a full refresh would delete the rows of other streams."""
    if others:
        raise _refused(
            f"{table} is filled by {others[0]} too: a full refresh would remove its rows",
            "give one of them another `into`; if the other is not used any more, delete its row from the table "
            "`ledger` of `own_schema`",
        )


def refuse_foreign_rows(table: TableName) -> None:
    """Refuse the first full refresh of a table that has other rows."""
    raise _refused(
        f"{table} holds rows that this stream did not write: a full refresh would delete those that it does not bring",
        f"set `replace_existing: true` on the stream if the rows of {table} may be replaced; otherwise name another "
        "table with `into`",
    )


def refuse_own_source(
    connection: Connection, table: TableName, content: Content, oid: str, *, is_refresh: bool
) -> None:
    """StreamRefused if the stream would be written into the table that it is read from."""
    if reads_table(connection, content, oid, is_refresh=is_refresh):
        raise _own_source(table, content)


def _own_source(table: TableName, content: Content) -> StreamRefused:
    source = content.identity["table"]
    what = f"source and sink are the same table: {table} of the same database"
    if str(table) != source:
        what = f"the stream would be written into what it reads: {table} and {source} of the same database share rows"
    return _refused(
        what,
        "see that `url` of the sink names another database than `url` of the source, or name another table with "
        "`schema` of the sink or `into` of the stream",
    )


def _refused(what: str, step: str) -> StreamRefused:
    return StreamRefused(what, next_step=step)


# ---------------------------------------------------------------- a sink that is its own source


def reads_table(connection: Connection, content: Content, oid: str, *, is_refresh: bool) -> bool:
    """Whether the stream reads the table with this oid: one wrong URL is enough for that.

    A full refresh would then delete rows that the application inserts in the meantime. A source that reads Postgres
    says in its content which database it reads (`identity`) and which table.
    """
    identity: Mapping[str, Any] = content.identity
    if not (isinstance(identity.get("oid"), str) and identity.get("table")):
        return False  # not a stream of a Postgres database
    here = _ask_server(connection)
    there = Identity(identity.get("system"), identity["oid"], str(identity.get("database")))
    timelines = {identity.get("timeline"), here.timeline} - {None}
    # A copy of the server that was promoted has the same identifier, and another timeline.
    if not here.identity.same(there) or len(timelines) > 1:
        return False
    source = TableName.read(str(identity["table"]), "")
    query = load_statement(__package__, "overlap").format(
        source=sql.Literal(to_text(source.sql)), oid=sql.Literal(oid), views=sql.Literal(is_refresh)
    )
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def _ask_server(connection: Connection) -> ServerState:
    """Identify the server; a role with fewer rights learns less."""
    for facts in (
        VisibleFacts(),
        VisibleFacts(timeline=False, lsn=False),
        VisibleFacts(system=False, timeline=False, lsn=False),
    ):
        try:
            with connection.transaction():
                return read_server_state(connection.execute(server_query(facts)).fetchone())
        except psycopg.Error as error:
            if error.sqlstate not in REFUSAL_STATES:
                raise
    raise AssertionError("the last question asks for nothing that can be withheld")


def _is_string(described: str) -> bool:
    """Whether a type of the source, in its own words or in those of `core`, is one of strings."""
    return without_modifier(described) in (*_TEXTS, str(Plain.STRING))
