"""Whether a stream can land in its table as it is configured: asked before anything is intended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.links.postgres.literals import TableName, quote
from penstock.links.postgres.types import without_modifier
from penstock.ports import StreamInfo
from penstock.sinks.postgres.fitting import CHANGE, fits, put_aside, readable
from penstock.sinks.postgres.merging import Rules
from penstock.sinks.postgres.options import StreamOptions
from penstock.sinks.postgres.own_source import OWN_SOURCE, into_itself
from penstock.sinks.postgres.staging import PLACE
from penstock.sinks.postgres.target import Target

#: the longest name that Postgres keeps, in bytes
LONGEST = 63
#: columns that a table of Postgres can have
MOST_COLUMNS = 1600


#: types that are compared as text, Postgres' and Arrow's
TEXTS = ("text", "character varying", "character", "string", "large_string")

DELETES_WITHOUT_KEY = (
    "the stream brings deletes, and without a key none of them can find its row: each would be added as a row of NULLs"
)
#: what becomes of deletes where there is no key
RENDER_DELETES = (
    "set `mode: upsert` and `key` on the stream; or leave deletes out with `deletes: ignore`; or add a row for each, "
    "marked in a column of its own, with `deletes: soft` and `deleted_at`"
)


def deletes_without_key(content: Content, rules: Rules) -> bool:
    """Whether deletes would be added as if they were rows."""
    brings = any(name == CHANGE for name, _ in put_aside(content))
    return brings and not rules.key and rules.deletes == "hard"


#: what to do if a table that is to be replaced has rows of another
ANOTHERS = (
    "give one of them another `into`; if the other is not used any more, delete its row from the table `ledger` of "
    "`own_schema`"
)


def written_over(table: TableName) -> str:
    return (
        f"{table} holds rows that this stream did not write: a full refresh would delete those that it does not bring"
    )


def replacing(table: TableName) -> str:
    return (
        f"set `replace_existing: true` on the stream if the rows of {table} may be replaced; otherwise name another "
        "table with `into`"
    )


def owned_by_another(table: TableName, others: Sequence[tuple[str, str]]) -> str:
    pipeline, stream = others[0]
    return f"{table} is filled by {pipeline}/{stream} too: a full refresh would remove its rows"


@dataclass(frozen=True)
class Checks:
    """One stream and its table."""

    pipeline: str
    stream: StreamInfo
    table: TableName
    options: StreamOptions
    rules: Rules
    content: Content
    #: None: it is not there
    target: Target | None
    #: whether it can be made where it is not; None: its schema is not there
    may_create: bool | None = True
    #: pipelines and streams that fill it too
    others: Sequence[tuple[str, str]] = ()
    #: its columns that must become wider, each with the type that it needs
    wider: Sequence[tuple[str, str]] = ()
    #: the role that writes
    role: str = ""
    #: it is the table that the stream reads
    itself: bool = False
    #: it has rows that this stream did not write, and no full refresh has replaced them yet
    holds_others: bool = False

    def run(self) -> None:
        """StreamRefused with everything that stands against the stream."""
        refuse_all(self._problems())

    def _problems(self) -> Iterator[StreamRefused]:
        yield from self._names()
        yield from self._rules()
        unsendable = list(problems_of([self._sendable]))
        yield from unsendable
        yield from self._width()
        if self.target is None:
            yield from self._can_be_made()
        elif self.target.kind not in ("r", "p"):
            kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
            what = {**kinds, "i": "an index"}.get(self.target.kind, "no table")
            yield self._refused(f"{self.table} is {what}", "name a table with `into` on the stream")
        else:
            yield from self._table(self.target)
            if not unsendable:
                yield from self._columns(self.target)
            yield from self._wider(self.target)

    def _sendable(self) -> None:
        self.put_aside(self.content, pipeline=self.pipeline, stream=self.stream.name)

    def _width(self) -> Iterator[StreamRefused]:
        """Staged rows carry a column of ours, and one that tells deletes from others where there are any."""
        columns = len(put_aside(self.content)) + 1
        if columns > MOST_COLUMNS:
            yield self._refused(
                f"{len(self.columns):,} columns cannot be staged: with penstock's own there are {columns:,}, and a "
                f"Postgres table has at most {MOST_COLUMNS:,}",
                f"leave {columns - MOST_COLUMNS} or more of them out with `shape` on the stream",
            )

    def _can_be_made(self) -> Iterator[StreamRefused]:
        schema = self.table.schema
        if self.may_create is None:
            yield self._refused(
                f"there is no schema {schema} for the table {self.table}",
                f"create it: CREATE SCHEMA {quote(schema)}; or name another with `schema` of the sink or `into` of "
                "the stream",
            )
        elif not self.options.create:
            yield self._refused(f"there is no table {self.table}", "create it, or set `create: true` on the stream")
        elif not self.may_create:
            yield self._refused(
                f"there is no table {self.table}, and the role {self.role} may not create it",
                f"run as the schema's owner: GRANT USAGE, CREATE ON SCHEMA {quote(schema)} TO {quote(self.role)};",
            )

    @property
    def columns(self) -> dict[str, str]:
        """The stream's columns, each with its type in words."""
        return {column.name: column.described for column in self.content.columns if column.name != CHANGE}

    @classmethod
    def put_aside(cls, content: Content, *, pipeline: str, stream: str) -> list[tuple[str, str]]:
        """The stream's columns, and the type in which each is put aside."""
        found: list[tuple[str, str]] = []
        for name, type_ in put_aside(content):
            if type_ is None:
                given = next(column.type for column in content.columns if column.name == name)
                raise StreamRefused(
                    f"column {name} is {given}, which has no form in Postgres",
                    next_step="leave it out or cast it with `shape` on the stream, for example to text",
                    pipeline=pipeline,
                    stream=stream,
                )
            found.append((name, type_))
        return found

    def _names(self) -> Iterator[StreamRefused]:
        for what, name in (("table", self.table.name), *(("column", name) for name in self.columns)):
            if len(name.encode()) > LONGEST:
                yield self._refused(
                    f"the {what} name {name} is longer than the {LONGEST} bytes that Postgres keeps",
                    "give it a shorter one: `into` for the table, `shape` for a column",
                )
        if PLACE in self.columns:
            yield self._refused(f"the column name {PLACE} is penstock's own", "rename it with `shape` on the stream")

    def _rules(self) -> Iterator[StreamRefused]:
        rules, options = self.rules, self.options
        if options.mode == "replace" and self.stream.kind is not Kind.REFRESH:
            yield self._refused(
                "`mode: replace` is for a full refresh, and this stream brings only what has changed",
                "leave out its cursor, or use `mode: upsert`",
            )
        if options.mode == "upsert" and not rules.key:
            yield self._refused("`mode: upsert` needs a key", "set `key` on the stream")
        yield from self._cursor_is_shipped()
        named = {"key": rules.key, "guard": rules.guard, "volatile": rules.volatile}
        named["newer_than"] = (rules.newer_than,) if rules.newer_than else ()
        for option, names in named.items():
            for name in names:
                if name not in self.columns:
                    yield self._refused(
                        f"`{option}` names the column {name}, which the stream does not have",
                        f"use one of: {', '.join(self.columns)}",
                    )
                if option != "key" and not rules.key:
                    yield self._refused(f"`{option}` has no meaning without a key", "set `key` on the stream")
        gone = absent(self.content)
        for option, name in rules.needs:
            if name in gone:
                yield self._refused(
                    f"`{option}` names the column {name}, which is gone at the source",
                    f"bring the column back, or change `{option}` on the stream",
                )
        if deletes_without_key(self.content, rules):
            yield self._refused(DELETES_WITHOUT_KEY, RENDER_DELETES)
        if options.deletes == "soft" and not options.deleted_at:
            yield self._refused("`deletes: soft` needs the column that marks them", "set `deleted_at` on the stream")

    def _cursor_is_shipped(self) -> Iterator[StreamRefused]:
        """Several rows of the source can share the key: what tells the newest of them must come with every row."""
        name = self.rules.newer_than
        if self.options.newer_than is None and name is not None and name not in self.columns:
            yield self._refused(
                f"the key ({', '.join(self.rules.key)}) does not contain the primary key, so several rows of the "
                f"source can share it, and the cursor {name}, which tells the newest of them, is not shipped",
                f"ship {name}, or name another column with `newer_than`",
            )

    def _table(self, target: Target) -> Iterator[StreamRefused]:
        if self.stream.kind is Kind.REFRESH and self.others:
            yield self._refused(owned_by_another(self.table, self.others), ANOTHERS)
        if self.itself:
            yield self._refused(into_itself(self.table, self.content), OWN_SOURCE)
            return
        grants = self._grants(target)
        if grants:
            lacks = " and ".join(f"{', '.join(rights)} on {what}" for rights, what, _ in grants)
            run = " ".join(f"GRANT {', '.join(rights)} ON {at} TO {quote(self.role)};" for rights, _, at in grants)
            yield self._refused(f"the role {self.role} may not write: it lacks {lacks}", f"run as the owner: {run}")
        if not self.options.triggers and not (target.owned and target.owns_below):
            below = "" if not target.owned else ", and of its partitions,"
            yield self._refused(
                f"`triggers: false` needs the owner of {self.table}{below} and the role is not",
                "make the role of `url` a member of the owner, or leave `triggers` out",
            )
        if self.holds_others and not self.options.replace_existing:
            yield self._refused(written_over(self.table), replacing(self.table))
        known = all(name in self.columns for name in self.rules.key)
        if self.rules.key and known and not target.unique_by(self.rules.key):
            yield self._refused(
                f"{self.table} has no unique index on the key ({', '.join(self.rules.key)})",
                f"create one: CREATE UNIQUE INDEX ON {self.table.quoted} "
                f"({', '.join(map(quote, self.rules.key))}); or set `mode: append`",
            )

    def _grants(self, target: Target) -> list[tuple[list[str], str, str]]:
        """The rights that are missing: for people, and as SQL names what they are on."""
        whole = self.stream.kind is Kind.REFRESH
        deletes = whole or (self.content.changes and self.rules.key and self.rules.deletes == "hard")
        needed = [
            ("SELECT", True, target.may_select),
            ("INSERT", True, target.may_insert),
            ("UPDATE", bool(self.rules.key), target.may_update),
            ("DELETE", bool(deletes), target.may_delete),
        ]
        lacking = [right for right, is_needed, given in needed if is_needed and not given]
        schema, table = quote(self.table.schema), quote(self.table.name)
        found = [] if target.may_use_schema else [(["USAGE"], f"schema {self.table.schema}", f"SCHEMA {schema}")]
        return [*found, (lacking, str(self.table), f"{schema}.{table}")] if lacking else found

    def _columns(self, target: Target) -> Iterator[StreamRefused]:
        sent = dict(put_aside(self.content))
        for name, words in self.columns.items():
            column = target.column(name)
            if column is None:
                yield from self._lacking(target, name)
            elif column.generated:
                yield self._refused(
                    f"column {name} of {self.table} is generated: it cannot be written",
                    "leave it out with `shape` on the stream",
                )
            elif column.identity == "a" and self.rules.key and name not in self.rules.key:
                yield self._refused(
                    f"column {name} of {self.table} always counts by itself (identity): it cannot be updated",
                    "leave it out with `shape` on the stream, or make it GENERATED BY DEFAULT",
                )
            elif not readable(column):
                yield self._refused(
                    f"column {name} of {self.table} is {column.type}, whose values Postgres takes from nobody",
                    "make it text, or leave it out with `shape` on the stream",
                )
            elif not fits(sent[name] or "", column) and name not in dict(self.wider):
                yield self._refused(
                    f"column {name} is {words} and would not be exact in {self.table}, where it is {column.type}",
                    "cast it with `shape` on the stream, or change the column's type",
                )
            elif name == self.rules.newer_than and column.free in TEXTS and without_modifier(words) not in TEXTS:
                yield self._refused(
                    f"`newer_than` compares by column {name}, which is {column.type} in {self.table} and {words} at "
                    "the source: as text, 9 is newer than 10",
                    f"make it {words} in {self.table}, or name another column with `newer_than`",
                )
        given = [name for name in self.columns if name not in absent(self.content)]
        needed = [c.name for c in target.columns if c.not_null and not c.filled and c.name not in given]
        for name in needed:
            yield self._refused(
                f"column {name} of {self.table} may not be NULL, has no default, and the stream does not have it",
                "give it a default, or let it be NULL",
            )

    def _wider(self, target: Target) -> Iterator[StreamRefused]:
        """A column that became wider at the source does so here, where we may."""
        if not self.wider or (self.options.create and target.owned):
            return
        why = "only its owner may widen it" if self.options.create else "`create: false` leaves it as it is"
        at = self.table.quoted
        for name, type_ in self.wider:
            yield self._refused(
                f"column {name} became {type_} at the source, and is narrower in {self.table}: {why}",
                f"run as its owner: ALTER TABLE {at} ALTER COLUMN {quote(name)} TYPE {type_};",
            )

    def _lacking(self, target: Target, name: str) -> Iterator[StreamRefused]:
        if not self.options.create:
            yield self._refused(
                f"{self.table} has no column {name}",
                "add it, set `create: true` on the stream, or leave it out with `shape`",
            )
        elif not target.owned:
            yield self._refused(
                f"{self.table} has no column {name}, and only its owner may add it",
                "add it as the owner, or leave it out with `shape` on the stream",
            )

    def _refused(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=self.stream.name)
