"""Whether a stream can land in its table as it is configured: asked before anything is intended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.documents import Document
from penstock.core.drift import absent, columns_of
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName, plain, written
from penstock.links.postgres.types import bare
from penstock.ports import StreamInfo
from penstock.sinks.postgres.fitting import CHANGE, described, fits, put_aside, readable
from penstock.sinks.postgres.merging import Rules
from penstock.sinks.postgres.options import StreamOptions
from penstock.sinks.postgres.own_source import OWN_SOURCE, into_itself
from penstock.sinks.postgres.staging import PLACE
from penstock.sinks.postgres.target import Target

#: the longest name that Postgres keeps, in bytes
LONGEST = 63


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


def deletes_without_key(content: Document, rules: Rules) -> bool:
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
    content: Document
    #: None: it is not there
    target: Target | None
    #: whether it can be made where it is not; None: its schema is not there
    may_create: bool | None = True
    #: pipelines and streams that fill it too
    others: Sequence[tuple[str, str]] = ()
    #: its columns that must become wider, each with the type that it needs
    wider: Sequence[tuple[str, str]] = ()
    #: it is the table that the stream reads
    itself: bool = False
    #: it has rows that this stream did not write, and no full refresh has replaced them yet
    holds_others: bool = False

    def run(self) -> None:
        self._names()
        self._rules()
        self.put_aside(self.content, pipeline=self.pipeline, stream=self.stream.name)
        if self.target is None:
            self._can_be_made()
            return
        self._table(self.target)
        self._columns(self.target)
        self._wider(self.target)

    def _can_be_made(self) -> None:
        schema = self.table.schema
        if self.may_create is None:
            raise self._refused(
                f"there is no schema {schema} for the table {self.table}",
                f"create it (CREATE SCHEMA {plain(schema)}), or name another with `schema` of the sink or `into` of "
                "the stream",
            )
        if not self.options.create:
            raise self._refused(f"there is no table {self.table}", "create it, or set `create: true` on the stream")
        if not self.may_create:
            raise self._refused(
                f"there is no table {self.table}, and the role may not make it",
                f"GRANT CREATE ON SCHEMA {plain(schema)} TO the role of `url`, or create the table",
            )

    @property
    def columns(self) -> dict[str, str]:
        """The stream's columns, each with its type in words."""
        return {column["name"]: described(column) for column in columns_of(self.content) if column["name"] != CHANGE}

    @classmethod
    def put_aside(cls, content: Document, *, pipeline: str, stream: str) -> list[tuple[str, str]]:
        """The stream's columns, and the type in which each is put aside."""
        found: list[tuple[str, str]] = []
        for name, type_ in put_aside(content):
            if type_ is None:
                arrow = next(column["arrow"] for column in columns_of(content) if column["name"] == name)
                raise StreamRefused(
                    f"column {name} is {arrow}, which has no form in Postgres",
                    next_step="leave it out or cast it with `shape` on the stream, for example to text",
                    pipeline=pipeline,
                    stream=stream,
                )
            found.append((name, type_))
        return found

    def _names(self) -> None:
        for what, name in (("table", self.table.name), *(("column", name) for name in self.columns)):
            if len(name.encode()) > LONGEST:
                raise self._refused(
                    f"the {what} name {name} is longer than the {LONGEST} bytes that Postgres keeps",
                    "give it a shorter one: `into` for the table, `shape` for a column",
                )
        if PLACE in self.columns:
            raise self._refused(f"the column name {PLACE} is penstock's own", "rename it with `shape` on the stream")

    def _rules(self) -> None:
        rules, options = self.rules, self.options
        if options.mode == "replace" and self.stream.kind is not Kind.REFRESH:
            raise self._refused(
                "`mode: replace` is for a full refresh, and this stream brings only what has changed",
                "leave out its cursor, or use `mode: upsert`",
            )
        if options.mode == "upsert" and not rules.key:
            raise self._refused("`mode: upsert` needs a key", "set `key` on the stream")
        self._cursor_is_shipped()
        named = {"key": rules.key, "guard": rules.guard, "volatile": rules.volatile}
        named["newer_than"] = (rules.newer_than,) if rules.newer_than else ()
        for option, names in named.items():
            for name in names:
                if name not in self.columns:
                    raise self._refused(
                        f"`{option}` names the column {name}, which the stream does not have",
                        f"use one of: {', '.join(self.columns)}",
                    )
                if option != "key" and not rules.key:
                    raise self._refused(f"`{option}` has no meaning without a key", "set `key` on the stream")
        gone = absent(self.content)
        for option, name in rules.needs:
            if name in gone:
                raise self._refused(
                    f"`{option}` names the column {name}, which is gone at the source",
                    f"bring the column back, or change `{option}` on the stream",
                )
        if deletes_without_key(self.content, rules):
            raise self._refused(DELETES_WITHOUT_KEY, RENDER_DELETES)
        if options.deletes == "soft" and not options.deleted_at:
            raise self._refused("`deletes: soft` needs the column that marks them", "set `deleted_at` on the stream")

    def _cursor_is_shipped(self) -> None:
        """Several rows of the source can share the key: what tells the newest of them must come with every row."""
        name = self.rules.newer_than
        if self.options.newer_than is None and name is not None and name not in self.columns:
            raise self._refused(
                f"the key ({', '.join(self.rules.key)}) does not contain the primary key, so several rows of the "
                f"source can share it, and the cursor {name}, which tells the newest of them, is not shipped",
                f"ship {name}, or name another column with `newer_than`",
            )

    def _table(self, target: Target) -> None:
        if self.stream.kind is Kind.REFRESH and self.others:
            raise self._refused(owned_by_another(self.table, self.others), ANOTHERS)
        kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}
        if target.kind not in ("r", "p"):
            what = kinds.get(target.kind, "no table")
            raise self._refused(f"{self.table} is {what}", "name a table with `into` on the stream")
        if self.itself:
            raise self._refused(into_itself(self.table, self.content), OWN_SOURCE)
        needed = {"SELECT": target.may_select, "INSERT": target.may_insert}
        if self.rules.key:
            needed["UPDATE"] = target.may_update
        missing = [right for right, given in needed.items() if not given]
        if missing or not target.may_use_schema:
            right = f"{', '.join(missing)} on {self.table}" if missing else f"USAGE on schema {self.table.schema}"
            raise self._refused(f"the role may not write: it lacks {right}", f"GRANT {right} TO the role of `url`")
        if not self.options.triggers and not (target.owned and target.owns_below):
            below = "" if not target.owned else ", and of its partitions,"
            raise self._refused(
                f"`triggers: false` needs the owner of {self.table}{below} and the role is not",
                "make the role of `url` a member of the owner, or leave `triggers` out",
            )
        if self.holds_others and not self.options.replace_existing:
            raise self._refused(written_over(self.table), replacing(self.table))
        if self.rules.key and not target.unique_by(self.rules.key):
            raise self._refused(
                f"{self.table} has no unique index on the key ({', '.join(self.rules.key)})",
                "create one: ALTER TABLE … ADD PRIMARY KEY, or CREATE UNIQUE INDEX; or set `mode: append`",
            )

    def _columns(self, target: Target) -> None:
        sent = dict(put_aside(self.content))
        for name, words in self.columns.items():
            column = target.column(name)
            if column is None:
                self._lacking(target, name)
            elif column.generated:
                raise self._refused(
                    f"column {name} of {self.table} is generated: it cannot be written",
                    "leave it out with `shape` on the stream",
                )
            elif column.identity == "a" and self.rules.key and name not in self.rules.key:
                raise self._refused(
                    f"column {name} of {self.table} always counts by itself (identity): it cannot be updated",
                    "leave it out with `shape` on the stream, or make it GENERATED BY DEFAULT",
                )
            elif not readable(column):
                raise self._refused(
                    f"column {name} of {self.table} is {column.type}, whose values Postgres takes from nobody",
                    "make it text, or leave it out with `shape` on the stream",
                )
            elif not fits(sent[name] or "", column) and name not in dict(self.wider):
                raise self._refused(
                    f"column {name} is {words} and would not be exact in {self.table}, where it is {column.type}",
                    "cast it with `shape` on the stream, or change the column's type",
                )
            elif name == self.rules.newer_than and column.free in TEXTS and bare(words) not in TEXTS:
                raise self._refused(
                    f"`newer_than` compares by column {name}, which is {column.type} in {self.table} and {words} at "
                    "the source: as text, 9 is newer than 10",
                    f"make it {words} in {self.table}, or name another column with `newer_than`",
                )
        given = [name for name in self.columns if name not in absent(self.content)]
        needed = [c.name for c in target.columns if c.not_null and not c.filled and c.name not in given]
        if needed:
            raise self._refused(
                f"column {needed[0]} of {self.table} may not be NULL, has no default, and the stream does not have it",
                "give it a default, or let it be NULL",
            )

    def _wider(self, target: Target) -> None:
        """A column that became wider at the source does so here, where we may."""
        if not self.wider or (self.options.create and target.owned):
            return
        name, type_ = self.wider[0]
        why = "only its owner may widen it" if self.options.create else "`create: false` leaves it as it is"
        raise self._refused(
            f"column {name} became {type_} at the source, and is narrower in {self.table}: {why}",
            f"run as its owner: ALTER TABLE {written(self.table.sql)} ALTER COLUMN {plain(name)} TYPE {type_}",
        )

    def _lacking(self, target: Target, name: str) -> None:
        if not self.options.create:
            raise self._refused(
                f"{self.table} has no column {name}",
                "add it, set `create: true` on the stream, or leave it out with `shape`",
            )
        if not target.owned:
            raise self._refused(
                f"{self.table} has no column {name}, and only its owner may add it",
                "add it as the owner, or leave it out with `shape` on the stream",
            )

    def _refused(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=self.stream.name)
