"""Check, before a slice is planned, whether the table of a stream in mode `state` can be kept as it is configured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.ops import FEED_COLUMNS, Layout
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, refuse_all
from penstock.links.postgres.literals import TableName, quote
from penstock.links.postgres.types import postgres_type
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.check import MAX_COLUMNS, OTHER_KINDS
from penstock.sinks.postgres.columns import accepts_values, fits
from penstock.sinks.postgres.create import widens
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.options import MAX_NAME_BYTES, StreamConfig
from penstock.sinks.postgres.state.table import WantedColumn, layout_of, list_wanted, list_wider
from penstock.sinks.postgres.state.tables import StateTables
from penstock.sinks.postgres.target import Target, describe, holds_more, may_create_in

#: columns of the fold's own tables beside those of the entity
_OWN_COLUMNS = 16


def check_state(connection: Connection, ledger: Ledger, config: StreamConfig, content: Content) -> None:
    """StreamRefused with everything that prevents the stream from being kept."""
    layout = require_layout(content)
    table = config.table
    target = describe(connection, table)
    has_ledger = ledger.exists(connection)
    entry = ledger.read_intact(connection, config) if has_ledger else None
    tables = StateTables(ledger.schema, ledger.pipeline, config.info.name)
    before = tables.read(connection)
    if entry is not None and before is None and tables.has_moved(connection):
        raise refuse_other_mode(config)
    unknown = any(postgres_type(c.type) is None for c in (*layout.key, *layout.scalars, *layout.multi))
    StateCheck(
        config=config,
        content=content,
        layout=layout,
        before=before,
        target=target,
        wanted=[] if unknown else list_wanted(connection, layout, before),
        may_create=may_create_in(connection, table.schema) if target is None else True,
        without_temporary=_without_temporary(connection),
        others=ledger.list_others(connection, config.info.name, table) if has_ledger else (),
        role=connection.info.user,
        has_foreign_rows=bool(before is None and target and target.is_readable and holds_more(connection, table, 0)),
    ).run()


def _without_temporary(connection: Connection) -> str | None:
    """The name of the database if the role may not create temporary tables in it."""
    row = connection.execute(
        "SELECT CASE WHEN NOT has_database_privilege(current_database(), 'TEMPORARY') THEN current_database() END"
    ).fetchone()
    return str(row[0]) if row and row[0] is not None else None


@dataclass(frozen=True)
class StateCheck:
    """One stream and its table."""

    config: StreamConfig
    content: Content
    layout: Layout
    #: as of the last slice; None: there is none
    before: Layout | None
    #: None: it does not exist
    target: Target | None
    wanted: Sequence[WantedColumn]
    #: whether the role may create the table; None: its schema does not exist
    may_create: bool | None
    #: the database's name, if the role may not create temporary tables there
    without_temporary: str | None
    #: other streams that write it, each as `pipeline/stream`
    others: Sequence[str]
    role: str
    #: it has rows, and the stream has not written any
    has_foreign_rows: bool

    def run(self) -> None:
        refuse_all(self._find_problems())

    @property
    def table(self) -> TableName:
        return self.config.table

    def _find_problems(self) -> Iterator[StreamRefused]:
        yield from self._check_options()
        yield from self._check_fields()
        if self.without_temporary is not None:
            yield _refused(
                f"the role {self.role} may not create temporary tables, in which ops are folded",
                f"run as the database's owner: GRANT TEMPORARY ON DATABASE {quote(self.without_temporary)} TO "
                f"{quote(self.role)};",
            )
        if self.others:
            yield refuse_other_writers_error(self.table, self.others)
        if self.target is None:
            yield from self._check_creatable()
        elif not self.target.is_table:
            what = OTHER_KINDS.get(self.target.kind, "not a table")
            yield _refused(f"{self.table} is {what}", "name a table with `into` on the stream")
        else:
            yield from self._check_table(self.target)

    def _check_options(self) -> Iterator[StreamRefused]:
        if self.config.info.kind is not Kind.ROWS:
            yield _refused(
                "`mode: state` applies ops in their order, and the stream is a full refresh",
                "use `mode: append` or `mode: upsert`",
            )
        options, names = self.config.options, tuple(column.name for column in self.layout.key)
        if options.key is not None and set(options.key) != set(names):
            yield _refused(
                f"`key` names ({', '.join(options.key)}), and the key of the entity is ({', '.join(names)})",
                "leave out `key`: in mode `state` the stream declares it",
            )
        given = {"newer_than": options.newer_than, "guard": options.guard, "volatile": options.volatile}
        for name, value in (*given.items(), ("deleted_at", options.deleted_at)):
            if value:
                yield _refused(f"`{name}` has no meaning with `mode: state`", f"leave out `{name}`")
        if options.deletes != "hard":
            yield _refused(
                f"`deletes: {options.deletes}` is not possible with `mode: state`: a deleted entity has no row",
                "leave out `deletes`; to keep deleted entities, set `on_delete: ignore` on the table of the source",
            )
        if options.bad_rows != "fail":
            yield _refused(
                "`bad_rows: quarantine` is not possible with `mode: state`: an entity is what all its ops have led to. "
                "Ops whose values do not fit are quarantined in any case",
                "leave out `bad_rows`; an entity that the table rejects stops the stream",
            )

    def _check_fields(self) -> Iterator[StreamRefused]:
        layout = self.layout
        for column in (*layout.key, *layout.scalars, *layout.multi):
            if postgres_type(column.type) is None:
                yield _refused(
                    f"field {column.name} is {column.type}, which has no form in Postgres",
                    "take it out of the stream's tables, or compute it as another type",
                )
            if len(column.name.encode()) > MAX_NAME_BYTES:
                yield _refused(
                    f"the field name {column.name} is longer than the {MAX_NAME_BYTES} bytes that Postgres keeps",
                    "give the field a shorter name with `computed` at the source",
                )
        count = len(layout.key) + len(layout.scalars) + len(layout.multi)
        if count + _OWN_COLUMNS > MAX_COLUMNS:
            yield _refused(
                f"an entity of {count:,} fields cannot be folded: a Postgres table has at most {MAX_COLUMNS:,} columns",
                f"leave out {count + _OWN_COLUMNS - MAX_COLUMNS} or more of them at the source",
            )
        if self.before is not None:
            was, now = ([column.name for column in each.key] for each in (self.before, layout))
            if was != now:
                yield _refused(
                    f"the key of the entity was ({', '.join(was)}) and is ({', '.join(now)}) now: rows of {self.table} "
                    "have the old one",
                    f"begin again: penstock state reset FILE --stream {self.config.info.name}",
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
        options, key = self.config.options, tuple(column.name for column in self.layout.key)
        rights = [
            ("SELECT", target.may_select),
            ("INSERT", target.may_insert),
            ("UPDATE", target.may_update),
            ("DELETE", target.may_delete),
        ]
        missing = [right for right, is_granted in rights if not is_granted]
        if missing or not target.may_use_schema:
            grants = [] if target.may_use_schema else [f"GRANT USAGE ON SCHEMA {quote(self.table.schema)}"]
            grants += [f"GRANT {', '.join(missing)} ON {self.table.quoted}"] if missing else []
            yield _refused(
                f"the role {self.role} may not write {self.table}",
                "run as the owner: " + " ".join(f"{each} TO {quote(self.role)};" for each in grants),
            )
        if not options.triggers and not (target.owned and target.owns_below):
            yield _refused(
                f"`triggers: false` requires the role to own {self.table}",
                "make the role of `url` a member of the owner, or leave `triggers` out",
            )
        if self.has_foreign_rows and not options.replace_existing:
            yield refuse_foreign_rows(self.table)
        if all(target.column(name) for name in key) and not target.unique_by(key):
            yield _refused(
                f"{self.table} has no unique index on the key ({', '.join(key)})",
                f"create one: CREATE UNIQUE INDEX ON {self.table.quoted} ({', '.join(map(quote, key))});",
            )
        if target.row_security:
            yield _refused(
                f"row-level security hides rows of {self.table} from the role {self.role}, so that it cannot tell "
                "which entities exist",
                f"run as its owner: ALTER ROLE {quote(self.role)} BYPASSRLS; or use a role that sees all rows",
            )
        yield from self._check_columns(target)

    def _check_columns(self, target: Target) -> Iterator[StreamRefused]:
        options, wider = self.config.options, dict(list_wider(self.wanted, target))
        may_alter = options.create and target.owned
        for wanted in self.wanted:
            column = target.column(wanted.name)
            add = f"ALTER TABLE {self.table.quoted} ADD COLUMN {quote(wanted.name)} {wanted.type}"
            if column is None and not may_alter:
                why = "only its owner may add it" if options.create else "`create: false` leaves it as it is"
                yield _refused(f"{self.table} has no column {wanted.name}: {why}", f"run as its owner: {add};")
            elif column is None:
                continue
            elif wanted.is_multi and not column.type.endswith("[]"):
                yield _refused(
                    f"field {wanted.name} holds several values, and column {wanted.name} of {self.table} is "
                    f"{column.type}, not an array",
                    f"make it {wanted.type}, or name another table with `into`",
                )
            elif column.generated or not accepts_values(column):
                yield _refused(
                    f"column {wanted.name} of {self.table} ({column.type}) cannot be written",
                    "name another table with `into`, or take the field out of the stream's tables",
                )
            elif column.identity == "a" and wanted.name not in {each.name for each in self.layout.key}:
                yield _refused(
                    f"column {wanted.name} of {self.table} is GENERATED ALWAYS AS IDENTITY and cannot be updated",
                    "make it GENERATED BY DEFAULT",
                )
            elif wanted.name in wider and not may_alter:
                why = "only its owner may widen it" if options.create else "`create: false` leaves it as it is"
                alter = f"ALTER TABLE {self.table.quoted} ALTER COLUMN {quote(wanted.name)} TYPE {wider[wanted.name]}"
                yield _refused(
                    f"field {wanted.name} became {wanted.type}, and its column in {self.table} is {column.type}: {why}",
                    f"run as its owner: {alter};",
                )
            elif wanted.name not in wider and not self._holds(wanted, column.type, target):
                yield _refused(
                    f"field {wanted.name} is {wanted.described}, and its column in {self.table} is {column.type}, "
                    "which cannot hold every value",
                    f"change the column: ALTER TABLE {self.table.quoted} ALTER COLUMN {quote(wanted.name)} TYPE "
                    f"{wanted.type}; or begin again: penstock state reset FILE --stream {self.config.info.name}",
                )
        ours = {column.name for column in self.wanted}
        for column in target.columns:
            if column.not_null and not column.filled and column.name not in ours:
                yield _refused(
                    f"column {column.name} of {self.table} is NOT NULL without a default, and the entity does not have "
                    "it",
                    "give it a default, or let it be NULL",
                )

    def _holds(self, wanted: WantedColumn, type_: str, target: Target) -> bool:
        """Whether a column holds every value, as far as the declared type tells; text may hold anything."""
        column = target.column(wanted.name)
        if type_ in (wanted.type, "text[]" if wanted.is_multi else "text") or widens(wanted.type, type_):
            return True
        if wanted.before is not None and wanted.before != wanted.type and type_ == wanted.before:
            return False
        return column is not None and fits(wanted.sent, column) and column.type.endswith("[]") == wanted.is_multi


# ---------------------------------------------------------------- checks that a commit repeats


def require_layout(content: Content) -> Layout:
    """The declared fields; StreamRefused if rows are no documents of ops."""
    layout = layout_of(content)
    if layout is None:
        raise _refused(
            "`mode: state` applies ops, and the rows of this stream are not documents of ops",
            "use `mode: append` or `mode: upsert`; ops come from an `outbox` source",
        )
    if content.names != tuple(column.name for column in FEED_COLUMNS):
        raise _refused(
            f"`mode: state` needs the columns {', '.join(column.name for column in FEED_COLUMNS)}, and the stream "
            f"delivers {', '.join(content.names)}",
            "leave out `shape` on the stream: fields are declared by the tables of the source",
        )
    return layout


def refuse_other_mode(config: StreamConfig) -> StreamRefused:
    return _refused(
        f"the stream was delivered to {config.table} in another mode, so the table has no entities",
        f"set `mode` as it was; or begin again: penstock state reset FILE --stream {config.info.name}",
    )


def refuse_foreign_rows(table: TableName) -> StreamRefused:
    return _refused(
        f"{table} holds rows that this stream did not write: it cannot know what ops have led to them",
        f"set `replace_existing: true` on the stream if the rows of {table} may be deleted; otherwise name another "
        "table with `into`",
    )


def refuse_other_writers_error(table: TableName, others: Sequence[str]) -> StreamRefused:
    return _refused(
        f"{table} is filled by {others[0]} too: a table in mode `state` has one stream, because the order of ops of "
        "two is not defined",
        "give one of them another `into`; if the other is not used any more, delete its row from the table `ledger` of "
        "`own_schema`",
    )


def refuse_other_writers(table: TableName, others: Sequence[str]) -> None:
    """StreamRefused if other streams write the table."""
    if others:
        raise refuse_other_writers_error(table, others)


def _refused(what: str, step: str) -> StreamRefused:
    return StreamRefused(what, next_step=step)
