"""Validates a stream before it is read; each refusal names the table, the column and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from psycopg import sql

from penstock.core import content as core
from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, quote
from penstock.links.postgres.tables import Column, Table, describe
from penstock.links.postgres.types import choose_form
from penstock.sources.postgres.content import KeyColumn, TableContent
from penstock.sources.postgres.listing import missing_table_error
from penstock.sources.postgres.options import StreamOptions

#: the column of batches that says upsert or delete; see `penstock.ports.Reader`
RESERVED_COLUMN = "_change"
#: NULL cursors are counted up to this number
MAX_COUNTED_NULLS = 1000


def validate(session: Session, stream: str, options: StreamOptions, default_schema: str) -> tuple[TableContent, Table]:
    """The stream as it would be read now, and its table; StreamRefused if it cannot be read safely as configured."""
    check_options(stream, options)
    key = key_names(options)
    name = table_name(stream, options, default_schema)
    table = describe(lambda query: session.rows(query, table=str(name), stream=stream), name, key)
    if table is None:
        raise missing_table_error(session, stream, name)
    checks = TableChecks(stream, options, table, session)
    checks.check_schema_privilege()
    checks.check_columns_exist()
    if options.cursor:
        checks.check_key_complete()
    key_checks = (checks.check_key,) if options.cursor else ()
    refuse_all(problems_of((checks.check_column_privileges, *key_checks, checks.check_row_security)))
    checks.check_filter()
    if options.cursor and options.nulls == "fail":
        checks.check_cursor_nulls()
    content = TableContent(
        mode="keyset" if options.cursor else "refresh",
        table=name,
        columns=tuple(_content_column(column, options) for column in checks.columns),
        key=tuple(KeyColumn(column.name, column.type) for column in checks.find_columns(key)),
        unique=options.unique,
        nulls=options.nulls,
        row_security=options.row_security,
        identity=session.identity,
        timeline=session.server.timeline,
        where=options.where,
        unfit=options.unfit,
        primary_key=table.primary_key,
    )
    return content, table


def _content_column(column: Column, options: StreamOptions) -> core.Column:
    how = choose_form(column.base or column.type, arrays=options.arrays, unfit=options.unfit)
    return core.Column(column.name, how.type, column.type, column.base)


def key_names(options: StreamOptions) -> tuple[str, ...]:
    """The columns that order the stream; () for a full refresh."""
    return (options.cursor, *options.tiebreaker) if options.cursor else ()


def table_name(stream: str, options: StreamOptions, default_schema: str) -> TableName:
    try:
        return TableName.read(options.table or stream, default_schema)
    except ValueError as error:
        raise StreamRefused(str(error), next_step="set `table` of the stream", stream=stream) from None


def check_options(stream: str, options: StreamOptions) -> None:
    """Check the options alone, without the database."""

    def refuse(what: str, next_step: str) -> NoReturn:
        raise StreamRefused(what, next_step=next_step, stream=stream)

    tiebreaker = ", ".join(options.tiebreaker)
    if not options.cursor and options.tiebreaker:
        refuse(
            f"`tiebreaker` ({tiebreaker}) is set, but no `cursor`",
            "add the `cursor`, or remove `tiebreaker` to read the table whole in every run",
        )
    if not options.cursor and options.unique:
        refuse(
            "`unique: true` is set, but no `cursor`",
            "add the `cursor`, or remove `unique` to read the table whole in every run",
        )
    if options.cursor in options.tiebreaker:
        refuse(
            f"`cursor` and `tiebreaker` are the same column, {options.cursor}",
            "name a `tiebreaker` that distinguishes rows with the same cursor, or replace it by `unique: true` "
            f"if {options.cursor} is unique and only increases",
        )
    if options.unique and options.tiebreaker:
        refuse(
            f"`unique: true` and `tiebreaker` ({tiebreaker}) are both set",
            "keep `tiebreaker`, or keep `unique: true` if the cursor alone is unique and only increases",
        )


def yaml_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def create_index(table: Table, columns: Sequence[str], what: str = "INDEX") -> str:
    """The statement that creates an index; that of a partitioned table cannot be created concurrently."""
    concurrently = "" if table.kind == "p" else " CONCURRENTLY"
    return f"CREATE {what}{concurrently} ON {table.name.quoted} ({', '.join(map(quote, columns))});"


@dataclass(frozen=True, slots=True)
class TableChecks:
    """The checks of one table; each raises StreamRefused with the remedy."""

    stream: str
    options: StreamOptions
    table: Table
    session: Session

    @property
    def user(self) -> str:
        return self.session.user

    @property
    def key(self) -> tuple[str, ...]:
        return key_names(self.options)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to read, in the table's order unless the user gave one."""
        return self.table.columns if self.options.columns is None else self.find_columns(self.options.columns)

    def find_columns(self, names: Iterable[str]) -> tuple[Column, ...]:
        return tuple(column for name in names if (column := self.table.column(name)))

    def refuse(self, what: str, next_step: str) -> NoReturn:
        raise StreamRefused(what, next_step=next_step, stream=self.stream)

    # ------------------------------------------------------------ names and permissions

    def check_schema_privilege(self) -> None:
        schema = self.table.name.schema
        if not self.table.may_use_schema:
            self.refuse(
                f"user {self.user} may not use schema {schema}",
                f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(self.user)};",
            )

    def check_columns_exist(self) -> None:
        asked = {
            "cursor": (self.options.cursor,) if self.options.cursor else (),
            "tiebreaker": self.options.tiebreaker,
            "columns": self.options.columns or (),
        }
        known = [column.name for column in self.table.columns]
        said, steps = [], []
        for option, names in asked.items():
            for name in names:
                if self.table.column(name) is None:
                    said.append(f"{name} (`{option}`{did_you_mean(name, known)})")
                    steps.append(option)
        if said:
            self.refuse(
                f"{self.table.name} has no column {'; '.join(said)}",
                f"correct {' and '.join(f'`{option}`' for option in dict.fromkeys(steps))}; "
                f"the columns are: {', '.join(known)}",
            )
        if not self.columns:
            self.refuse(f"{self.table.name} has no columns", "give it some, or leave the table out")
        if RESERVED_COLUMN in (column.name for column in self.columns):
            self.refuse(
                f"{self.table.name} has a column {RESERVED_COLUMN}, a name that penstock keeps for itself",
                f"list the other columns in `columns`, or rename {RESERVED_COLUMN}",
            )

    def check_column_privileges(self) -> None:
        self.require_select((*self.columns, *self.find_columns(self.key)))

    def require_select(self, wanted: Iterable[Column]) -> None:
        hidden = list(dict.fromkeys(column.name for column in wanted if not column.may_select))
        if not hidden:
            return
        to = quote(self.user)
        if not any(column.may_select for column in self.table.columns):
            self.refuse(
                f"user {self.user} may not read {self.table.name}",
                f"GRANT SELECT ON {self.table.name.quoted} TO {to};",
            )
        grant = f"GRANT SELECT ({', '.join(map(quote, hidden))}) ON {self.table.name.quoted} TO {to};"
        self.refuse(
            f"user {self.user} may not read {', '.join(hidden)} of {self.table.name}",
            f"{grant} or leave them out by listing the others in `columns`",
        )

    def check_row_security(self) -> None:
        if self.table.row_security and self.options.row_security == "refuse":
            self.refuse(
                f"row-level security may hide rows of {self.table.name} from user {self.user}",
                f"ALTER ROLE {quote(self.user)} BYPASSRLS; or set `row_security: accept` for what it sees",
            )

    def check_filter(self) -> None:
        """Ask the server whether it accepts `where`; no row is read.

        Asks in two forms: a condition like `a) OR (b` would be valid in one of them.
        """
        if self.options.where is None:
            return
        for template in ("(\n{}\n)", "coalesce(\n{}\n, false)"):
            condition = sql.SQL(template).format(sql.SQL(self.options.where))
            query = sql.SQL("SELECT FROM {} AS t WHERE {} LIMIT 0").format(self.table.name.sql, condition)
            wrong = self.session.find_error(query, user_statement=True)
            if not wrong:
                continue
            self.refuse(
                f"`where` is not a valid condition for {self.table.name}: {wrong}",
                "correct `where`; functions and operators outside pg_catalog are written with their schema",
            )

    # ------------------------------------------------------------ the key

    def proposal(self) -> str | None:
        """A suitable key from the primary key."""
        rest = tuple(name for name in self.table.primary_key if name != self.options.cursor)
        if rest:
            verb = "replace `unique: true` by" if self.options.unique else "set"
            return f"{verb} `tiebreaker: {yaml_list(rest)}` (the primary key)"
        if self.table.primary_key:
            verb = "replace `tiebreaker` by" if self.options.tiebreaker else "set"
            return f"{verb} `unique: true` (the cursor is the primary key) if it only increases"
        return None

    def check_key_complete(self) -> None:
        if not self.options.tiebreaker and not self.options.unique:
            step = self.proposal() or "give the table a primary key and name it as `tiebreaker`"
            self.refuse(
                f"`cursor: {self.options.cursor}` has neither a `tiebreaker` nor `unique: true`: rows with "
                f"the same {self.options.cursor} could be lost or duplicated between two slices",
                step,
            )

    def check_key(self) -> None:
        self.check_key_order()
        refuse_all(problems_of((self.check_key_unique, self.check_key_index)))

    def check_key_order(self) -> None:
        for column in self.find_columns(self.key):
            role = "cursor" if column.name == self.options.cursor else "tiebreaker"
            what = f"{column.name} of {self.table.name} cannot be the {role}"
            if column.order == "none":
                self.refuse(
                    f"{what}: its type {column.type} has no order",
                    f"name a {role} of a type with an order, such as a timestamp or a number",
                )
            if column.order != "built-in":
                self.refuse(
                    f"{what}: its type {column.type} has the order of an extension",
                    f"name a {role} of a built-in type, such as a timestamp, a number or text",
                )

    def check_key_unique(self) -> None:
        name, cursor = self.table.name, self.options.cursor
        if self.table.inherited:
            self.refuse(
                f"other tables inherit from {name}, and no unique index covers their rows too",
                "read each table as a stream of its own, or remove `cursor` to read them whole in every run",
            )
        must_be_filled = self.key if self.options.unique else self.options.tiebreaker
        for column in self.find_columns(must_be_filled):
            if not column.not_null:
                role = "cursor" if self.options.unique else "tiebreaker"
                alter = f"ALTER TABLE {self.table.name.quoted} ALTER COLUMN {quote(column.name)} SET NOT NULL;"
                self.refuse(f"the {role} {column.name} of {name} is nullable", self._proposal_or(alter))
        if any(index.unique and set(index.columns) <= set(self.key) for index in self.table.indexes):
            return
        columns = self.key if self.options.unique else self.options.tiebreaker
        step = self._proposal_or(create_index(self.table, columns, "UNIQUE INDEX"))
        if self.options.unique:
            self.refuse(f"`unique: true` is not proven: {name} has no unique index on {cursor}", step)
        self.refuse(
            f"the tiebreaker {', '.join(self.options.tiebreaker)} does not tell rows of {name} apart: "
            "no unique index proves it",
            step,
        )

    def check_key_index(self) -> None:
        if self.options.index == "optional" or self.table.has_index_on(self.key):
            return
        self.refuse(
            f"{self.table.name} has no index on ({', '.join(self.key)}): every slice would sort the table",
            f"{create_index(self.table, self.key)} or set `index: optional`",
        )

    def check_cursor_nulls(self) -> None:
        cursor = self.find_columns(self.key)[0]
        if cursor.not_null:
            return
        query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} WHERE {} IS NULL LIMIT {}) x").format(
            self.table.name.sql, sql.Identifier(cursor.name), sql.Literal(MAX_COUNTED_NULLS)
        )
        count = self.session.rows(query, table=str(self.table.name), stream=self.stream)[0][0]
        if count:
            many = (
                f"at least {count} rows" if count == MAX_COUNTED_NULLS else "1 row" if count == 1 else f"{count} rows"
            )
            self.refuse(
                f"{many} of {self.table.name} {'has' if count == 1 else 'have'} NULL as the cursor "
                f"{cursor.name} and would never be read",
                f"fill {cursor.name} in, or set `nulls: skip` to leave such rows out",
            )

    def _proposal_or(self, remedy: str) -> str:
        if self.table.kind in ("v", "f"):
            return "read the table behind it, or remove `cursor` to read it whole in every run"
        return self.proposal() or remedy
