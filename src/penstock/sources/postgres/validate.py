"""What must hold before a stream is read; a rule that fails names the table, the column and the remedy."""

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
from penstock.links.postgres.types import choose_form
from penstock.sources.postgres.catalog import Column, Table, describe, similar
from penstock.sources.postgres.content import KeyColumn, TableContent
from penstock.sources.postgres.identity import TableIdentity
from penstock.sources.postgres.options import StreamOptions

#: a column that says upsert or delete in every batch; see Reader in ports.py
RESERVED = "_change"
#: NULL cursors are counted up to here
MOST_NULLS = 1000


def validate(session: Session, stream: str, options: StreamOptions, default_schema: str) -> TableContent:
    """The stream as it would be read now; StreamRefused if it cannot be read safely as it is configured."""
    return validate_table(session, stream, options, default_schema)[0]


def validate_table(
    session: Session, stream: str, options: StreamOptions, default_schema: str
) -> tuple[TableContent, TableIdentity]:
    """The same, with which table it is."""
    check_options(stream, options)
    key = key_names(options)
    name = table_name(stream, options, default_schema)
    table = describe(session, name, key, stream=stream)
    if table is None:
        raise missing_table(session, stream, name)
    rules = Rules(stream, options, table, session.user)
    rules.schema_may_be_used()
    rules.columns_exist()
    if options.cursor:
        rules.key_is_whole()
    of_the_key = (rules.key_will_do,) if options.cursor else ()
    refuse_all(problems_of((rules.columns_may_be_read, *of_the_key, rules.row_security_is_off)))
    rules.condition_is_one(session)
    if options.cursor and options.nulls == "fail":
        rules.no_cursor_is_null(session)
    content = TableContent(
        mode="keyset" if options.cursor else "refresh",
        table=name,
        columns=tuple(column_read(column, options) for column in rules.columns),
        key=tuple(KeyColumn(column.name, column.type) for column in rules.found(key)),
        unique=options.unique,
        nulls=options.nulls,
        row_security=options.row_security,
        identity=session.identity,
        timeline=session.server.timeline,
        where=options.where,
        unfit=options.unfit,
        primary_key=table.primary_key,
    )
    return content, table.identity


def column_read(column: Column, options: StreamOptions) -> core.Column:
    how = choose_form(column.base or column.type, arrays=options.arrays, unfit=options.unfit)
    return core.Column(column.name, how.type, column.type, column.base)


def key_names(options: StreamOptions) -> tuple[str, ...]:
    """The columns that order the stream; () if it is read whole."""
    return (options.cursor, *options.tiebreaker) if options.cursor else ()


def table_name(stream: str, options: StreamOptions, default_schema: str) -> TableName:
    try:
        return TableName.read(options.table or stream, default_schema)
    except ValueError as error:
        raise StreamRefused(str(error), next_step="set `table` of the stream", stream=stream) from None


def check_options(stream: str, options: StreamOptions) -> None:
    """What the options say of themselves, before the database is asked."""

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
            "name a `tiebreaker` that tells rows with an equal cursor apart, or replace it by `unique: true` "
            f"if {options.cursor} is unique and only grows",
        )
    if options.unique and options.tiebreaker:
        refuse(
            f"`unique: true` and `tiebreaker` ({tiebreaker}) are both set",
            "keep `tiebreaker`, or keep `unique: true` if the cursor alone is unique and only grows",
        )


def missing_table(session: Session, stream: str, name: TableName) -> StreamRefused:
    near = similar(session, name)
    hint = f"; did you mean {near}?" if near else ""
    step = f"set `table: {near}`" if near else f"correct `table` of the stream, or create {name}"
    return StreamRefused(
        f"there is no table {name} in database {session.identity.database}{hint}",
        next_step=step,
        stream=stream,
    )


def yaml_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules about one table, in the order in which they make sense."""

    stream: str
    options: StreamOptions
    table: Table
    user: str

    @property
    def key(self) -> tuple[str, ...]:
        return key_names(self.options)

    @property
    def columns(self) -> tuple[Column, ...]:
        """What travels, in the table's order unless the user gave one."""
        return self.table.columns if self.options.columns is None else self.found(self.options.columns)

    def found(self, names: Iterable[str]) -> tuple[Column, ...]:
        return tuple(column for name in names if (column := self.table.column(name)))

    @property
    def sql_name(self) -> str:
        """The table in SQL that a user is asked to run."""
        return self.table.name.quoted

    def refuse(self, what: str, next_step: str) -> NoReturn:
        raise StreamRefused(what, next_step=next_step, stream=self.stream)

    # ------------------------------------------------------------ names and permissions

    def schema_may_be_used(self) -> None:
        schema = self.table.name.schema
        if not self.table.may_use_schema:
            self.refuse(
                f"user {self.user} may not use schema {schema}",
                f"GRANT USAGE ON SCHEMA {quote(schema)} TO {quote(self.user)};",
            )

    def columns_exist(self) -> None:
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
        if RESERVED in (column.name for column in self.columns):
            self.refuse(
                f"{self.table.name} has a column {RESERVED}, a name that penstock keeps for itself",
                f"list the other columns in `columns`, or rename {RESERVED}",
            )

    def columns_may_be_read(self) -> None:
        wanted = (*self.columns, *self.found(self.key))
        hidden = list(dict.fromkeys(column.name for column in wanted if not column.may_select))
        if not hidden:
            return
        to = quote(self.user)
        if not any(column.may_select for column in self.table.columns):
            self.refuse(
                f"user {self.user} may not read {self.table.name}",
                f"GRANT SELECT ON {self.sql_name} TO {to};",
            )
        grant = f"GRANT SELECT ({', '.join(map(quote, hidden))}) ON {self.sql_name} TO {to};"
        self.refuse(
            f"user {self.user} may not read {', '.join(hidden)} of {self.table.name}",
            f"{grant} or leave them out by listing the others in `columns`",
        )

    def row_security_is_off(self) -> None:
        if self.table.row_security and self.options.row_security == "refuse":
            self.refuse(
                f"row-level security may hide rows of {self.table.name} from user {self.user}",
                f"ALTER ROLE {quote(self.user)} BYPASSRLS; or set `row_security: accept` for what it sees",
            )

    def condition_is_one(self, session: Session) -> None:
        """The server is asked whether it understands `where`; no row is read.

        Asked in two ways: one that closes our bracket and opens another, `a) OR (b`, would fit one of them.
        """
        if self.options.where is None:
            return
        for form_ in ("(\n{}\n)", "coalesce(\n{}\n, false)"):
            condition = sql.SQL(form_).format(sql.SQL(self.options.where))
            query = sql.SQL("SELECT FROM {} AS t WHERE {} LIMIT 0").format(self.table.name.sql, condition)
            wrong = session.refuses(query)
            if not wrong:
                continue
            self.refuse(
                f"`where` is not a condition that {self.table.name} knows: {wrong}",
                "correct `where`; functions and operators outside pg_catalog are written with their schema",
            )

    # ------------------------------------------------------------ the key

    def proposal(self) -> str | None:
        """A key that would do, from the primary key."""
        rest = tuple(name for name in self.table.primary_key if name != self.options.cursor)
        if rest:
            verb = "replace `unique: true` by" if self.options.unique else "set"
            return f"{verb} `tiebreaker: {yaml_list(rest)}` (the primary key)"
        if self.table.primary_key:
            verb = "replace `tiebreaker` by" if self.options.tiebreaker else "set"
            return f"{verb} `unique: true` (the cursor is the primary key) if it only grows"
        return None

    def key_is_whole(self) -> None:
        if not self.options.tiebreaker and not self.options.unique:
            step = self.proposal() or "give the table a primary key and name it as `tiebreaker`"
            self.refuse(
                f"`cursor: {self.options.cursor}` has neither a `tiebreaker` nor `unique: true`: rows with "
                f"an equal {self.options.cursor} could be lost or doubled between two slices",
                step,
            )

    def key_will_do(self) -> None:
        self.key_has_an_order()
        refuse_all(problems_of((self.key_is_unique, self.key_has_an_index)))

    def key_has_an_order(self) -> None:
        for column in self.found(self.key):
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

    def key_is_unique(self) -> None:
        name, cursor = self.table.name, self.options.cursor
        if self.table.inherited:
            self.refuse(
                f"other tables inherit from {name}, and no unique index covers their rows too",
                "read each table as a stream of its own, or remove `cursor` to read them whole in every run",
            )
        must_be_filled = self.key if self.options.unique else self.options.tiebreaker
        for column in self.found(must_be_filled):
            if not column.not_null:
                role = "cursor" if self.options.unique else "tiebreaker"
                alter = f"ALTER TABLE {self.sql_name} ALTER COLUMN {quote(column.name)} SET NOT NULL;"
                self.refuse(f"the {role} {column.name} of {name} may be NULL", self._proposal_or(alter))
        if any(index.unique and set(index.columns) <= set(self.key) for index in self.table.indexes):
            return
        columns = ", ".join(map(quote, self.key if self.options.unique else self.options.tiebreaker))
        step = self._proposal_or(self._create_index("UNIQUE INDEX", columns))
        if self.options.unique:
            self.refuse(f"`unique: true` is not proven: {name} has no unique index on {cursor}", step)
        self.refuse(
            f"the tiebreaker {', '.join(self.options.tiebreaker)} does not tell rows of {name} apart: "
            "no unique index proves it",
            step,
        )

    def key_has_an_index(self) -> None:
        if self.options.index == "optional":
            return
        wide = len(self.key)
        if any(i.columns[:wide] == self.key and (i.ascending or i.descending) for i in self.table.indexes):
            return
        self.refuse(
            f"{self.table.name} has no index on ({', '.join(self.key)}): every slice would sort the table",
            f"{self._create_index('INDEX', ', '.join(map(quote, self.key)))} or set `index: optional`",
        )

    def no_cursor_is_null(self, session: Session) -> None:
        cursor = self.found(self.key)[0]
        if cursor.not_null:
            return
        query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} WHERE {} IS NULL LIMIT {}) x").format(
            self.table.name.sql, sql.Identifier(cursor.name), sql.Literal(MOST_NULLS)
        )
        count = session.rows(query, table=str(self.table.name), stream=self.stream)[0][0]
        if count:
            many = f"at least {count} rows" if count == MOST_NULLS else "1 row" if count == 1 else f"{count} rows"
            self.refuse(
                f"{many} of {self.table.name} {'has' if count == 1 else 'have'} NULL as the cursor "
                f"{cursor.name} and would never be read",
                f"fill {cursor.name} in, or set `nulls: skip` to leave such rows out",
            )

    def _create_index(self, what: str, columns: str) -> str:
        # A partitioned table's index cannot be made concurrently.
        concurrently = "" if self.table.kind == "p" else " CONCURRENTLY"
        return f"CREATE {what}{concurrently} ON {self.sql_name} ({columns});"

    def _proposal_or(self, remedy: str) -> str:
        if self.table.kind in ("v", "f"):
            return "read the table behind it, or remove `cursor` to read it whole in every run"
        return self.proposal() or remedy
