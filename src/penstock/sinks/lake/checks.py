"""Checks whether a stream fits its table, before any intent. Without PyIceberg as long as nothing has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.slices import Kind
from penstock.core.types import Plain, Type, is_nested
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import TableState
from penstock.ports import StreamInfo
from penstock.sinks.lake.options import StreamOptions
from penstock.sinks.lake.state_tables import find_problems, layout_of, list_columns

#: column names that the lake and the pipe use themselves
RESERVED = (*names.INTERNAL, "_change")


def newer_than(options: StreamOptions, stream: StreamInfo) -> str | None:
    """The column by which a row of a merged table is newer than another of its key; None: the last one is."""
    if options.mode != "merge":
        return None
    return options.newer_than or stream.newest_by(options.key or stream.primary_key)


@dataclass(frozen=True)
class Checks:
    """One stream against one table."""

    lake: Lake
    pipeline: str
    stream: str
    kind: Kind
    #: the table's name, without its namespace
    table: str
    options: StreamOptions
    #: whether the user has named the table, or its namespace
    named: bool
    key: Sequence[str]
    #: the column by which a row is newer than another of its key; None: the last one is
    newer_than: str | None
    content: Content

    def check_admission(self, state: TableState) -> None:
        """StreamRefused if the table holds what this stream must not touch.

        Asked again when the first slice lands: the table may have been created, or filled, in between.
        """
        refuse_all(self.admission_problems(state))

    def run(self, state: TableState | None) -> None:
        """StreamRefused with everything that stands against the stream, each with the choice to make."""
        refuse_all(self._problems(state))

    def _problems(self, state: TableState | None) -> Iterator[StreamRefused]:
        columns, of_mode = self._columns(), list(self._mode())
        of_columns = [
            *of_mode,
            *self._names(columns),
            *self._key(columns),
            *self._newer_than(columns),
            *self._deletes(columns),
        ]
        of_table = list(self._table(state)) if state is not None else []
        yield from (*of_columns, *of_table)
        if self.kind is Kind.REFRESH:
            yield from self._refresh()
        if not of_columns and not of_table:
            # Columns are compared once they are right by themselves, and it is the right table.
            yield from problems_of([lambda: self._check_schema(state)])

    def _columns(self) -> dict[str, Type]:
        """The columns that the table has for the stream."""
        if self.options.mode == "state" and self.content.entities is not None:
            return list_columns(layout_of(self.content))
        return {column.name: column.type for column in self.content.columns}

    def _mode(self) -> Iterator[StreamRefused]:
        if self.options.mode == "state":
            for what, step in find_problems(self.content, self.options, self.kind):
                yield self._refused(what, step)
        elif self.options.early_for is not None:
            yield self._refused(
                "`early_for` has no meaning without `mode: state`", "set `mode: state`, or leave it out"
            )

    def _names(self, columns: Collection[str]) -> Iterator[StreamRefused]:
        for name in columns:
            if name in RESERVED:
                yield self._refused(
                    f"the column name {name!r} is reserved by the lake",
                    "leave it out with `columns`, or rename it in the source",
                )

    def _key(self, columns: Collection[str]) -> Iterator[StreamRefused]:
        if self.options.mode != "merge":
            return
        if not self.key:
            yield self._refused(
                "mode merge needs a key, and the stream has no primary key", "name the columns with `key: [id]`"
            )
        gone, unfit = absent(self.content), self.content.quarantined
        for name in self.key:
            if name not in columns:
                yield self._refused(f"key names the column {name!r}, which the stream does not have", _one_of(columns))
            elif name in gone or name in unfit:
                what = "the stream no longer has" if name in gone else "has another type now"
                yield self._refused(
                    f"the table is keyed by the column {name!r}, which {what}",
                    "change it back at the source, or by `shape: {rename: …}` or `shape: {cast: …}`; or land in "
                    "another table, with another `into` and `key`",
                )

    def _newer_than(self, columns: Mapping[str, Type]) -> Iterator[StreamRefused]:
        """The column that decides which of two rows is newer must come with every row."""
        given, name = self.options.newer_than, self.newer_than
        if given is not None and name is None and self.options.mode != "state":
            yield self._refused(
                "`newer_than` has no meaning without `mode: merge`", "set `mode: merge`, or leave it out"
            )
        if name is None:
            return
        if name in columns and name not in (*absent(self.content), *self.content.quarantined):
            if is_nested(columns[name]):
                yield self._refused(
                    f"`newer_than` is the column {name!r} of type {columns[name]}, whose values have no order",
                    "name a column that grows with every change, such as a timestamp",
                )
        elif given is not None:
            yield self._refused(
                f"`newer_than` names the column {name!r}, which the stream does not have", _one_of(columns)
            )
        elif self.content.changes and set(self.content.key) <= set(self.key):
            yield self._refused(
                f"a row may arrive after a newer version of it, and the column {name!r}, which tells the newest, is "
                "not shipped",
                f"ship {name!r}, or name another column with `newer_than`",
            )
        else:
            yield self._refused(
                f"the key ({', '.join(self.key)}) does not contain the primary key, so several rows of the source can "
                f"share it, and the cursor {name!r}, which tells the newest of them, is not shipped",
                f"ship {name!r}, or name another column with `newer_than`",
            )

    def _deletes(self, columns: Collection[str]) -> Iterator[StreamRefused]:
        """What becomes of deletes must be said completely; the column that marks them is penstock's alone."""
        options, given = self.options, self.options.deleted_at
        if options.mode == "state":
            return
        if options.mode != "merge" and options.deletes != "hard":
            yield self._refused(
                f"`deletes: {options.deletes}` has no meaning without `mode: merge`: in a log, a delete is a row with "
                f"{names.DELETED} true",
                "set `mode: merge`, or leave it out",
            )
        if options.deletes == "soft" and not given:
            yield self._refused("`deletes: soft` needs the column that marks them", "set `deleted_at` on the stream")
        if given and options.deletes != "soft":
            yield self._refused(
                "`deleted_at` has no meaning without `deletes: soft`", "set `deletes: soft`, or leave it out"
            )
        if given and given.lower() in {name.lower() for name in columns}:
            yield self._refused(
                f"`deleted_at` names the column {given!r}, which the stream has too", "name another column with it"
            )
        if given and given.lower() in RESERVED:
            yield self._refused(
                f"`deleted_at` names the column {given!r}, which is reserved by the lake", "name another column with it"
            )

    def _marker(self, state: TableState) -> Iterator[StreamRefused]:
        """A column that the table has already must be able to hold the timestamps of deletes."""
        marker = self.options.marker
        for column in state.columns if marker else ():
            name, type_ = column["name"], column["type"]
            if name == marker and type_ != str(Plain.TIMESTAMPTZ):
                yield self._refused(
                    f"`deleted_at` names the column {name!r}, which is {type_ if isinstance(type_, str) else 'nested'} "
                    f"in {self._name}: it must be {Plain.TIMESTAMPTZ}, or not exist yet",
                    "name another column with it",
                )

    def _table(self, state: TableState) -> Iterator[StreamRefused]:
        yield from self.admission_problems(state)
        if not state.ours:
            return
        if state.mode != self.options.mode:
            yield self._refused(
                f"the table {self._name} was made with mode {state.mode}, not {self.options.mode}",
                f"set `mode: {state.mode}`; or {self._migrate}; or name another `into`",
            )
            return
        yield from self._marker(state)
        if state.keyed and state.properties.get(names.MERGE_MODE) != names.ON_READ:
            yield self._refused(
                f"the table {self._name} no longer has the property {names.MERGE_MODE} = {names.ON_READ}, without "
                "which rows of other writers cannot be told from those of a slice",
                f"in Spark: ALTER TABLE {self.lake.spark_table(self.table)} SET TBLPROPERTIES "
                f"('{names.MERGE_MODE}' = '{names.ON_READ}')",
            )
        if state.keyed and state.key != tuple(self.key):
            yield self._refused(
                f"the table {self._name} is keyed by {', '.join(state.key)}, not by {', '.join(self.key)}",
                f"{self._way_to_key(state)}{self._migrate}; or name another `into`",
            )

    def _way_to_key(self, state: TableState) -> str:
        return "" if self.options.mode == "state" else f"set `key: [{', '.join(state.key)}]`; or "

    def _refresh(self) -> Iterator[StreamRefused]:
        """A refresh replaces everything in the table."""
        if self.options.mode == "merge":
            yield self._refused(
                "a full refresh cannot be merged: it does not say which rows are gone",
                "give the stream a cursor, or use `mode: append`, where each refresh replaces the one before",
            )

    def _check_schema(self, state: TableState | None) -> None:
        link = state.link(self.pipeline, self.stream) if state else None
        before = Content.parse(link.position.content) if link else None
        has_marker = state and self.options.marker in (None, *(column["name"] for column in state.columns))
        columns = self.content.columns, self.content.drift, self.content.entities
        if before is not None and (before.columns, before.drift, before.entities) == columns and has_marker:
            return
        from penstock.sinks.lake.table_setup import check_schema

        check_schema(self)

    @property
    def _migrate(self) -> str:
        """How to move from one kind of table to another, for a next step."""
        return (
            f"run `penstock state migrate FILE --stream {self.stream}`, which keeps the table under another name "
            "and lets the stream begin again"
        )

    @property
    def _name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def _refused(self, what: str, step: str) -> StreamRefused:
        safe = "Nothing was changed."
        return StreamRefused(what, next_step=step, safe=safe, pipeline=self.pipeline, stream=self.stream)

    # ------------------------------------------------------------ a table that exists

    def admission_problems(self, state: TableState) -> Iterator[StreamRefused]:
        """Everything that keeps the stream out of the table."""
        if not state.ours and self.options.mode == "state":
            yield self._refused(
                f"the table {self._name} already exists, and penstock did not create it: a state table begins empty",
                "name another table with `into`",
            )
        elif not state.ours and not self.options.into_existing:
            yield self._refused(
                f"the table {self._name} already exists, and penstock did not create it",
                "set `into_existing: true` on the stream to land in it (it gets the column _ingest_seq), or name "
                "another table with `into`",
            )
        if self.content.identity.get("uuid") == state.uuid:
            yield self._refused(
                f"the table {self._name} is the one that the stream reads: its rows would go into itself",
                "name another table with `into` on the stream, or another `namespace` of the sink",
            )
        yield from self._others(state)
        if self.kind is Kind.REFRESH and not self.options.replace_existing:
            yield from self._rows(state)

    def _others(self, state: TableState) -> Iterator[StreamRefused]:
        others = [about for about in state.links() if about[0] != self.pipeline]
        if not others:
            return
        pipeline, stream = others[0]
        if self.kind is Kind.REFRESH:
            yield self._refused(
                f"a full refresh would replace all of {self._name}, where pipeline {pipeline!r} lands too",
                "name another `into`, or give the stream a cursor",
            )
        elif self.options.mode == "state" or state.mode == "state":
            yield self._refused(
                f"pipeline {pipeline!r} applies its stream {stream!r} to the table {self._name}, and the order of two "
                "streams of ops is not defined",
                "set `into` of the stream to another name",
            )
        elif not self.named:
            yield self._refused(
                f"pipeline {pipeline!r} lands its stream {stream!r} in the table {self._name}",
                "set `namespace` of the sink or `into` of the stream to another name; or, to share the table, to this "
                "one",
            )

    def _rows(self, state: TableState) -> Iterator[StreamRefused]:
        """A refresh deletes whatever is in the table: it must be this stream's own."""
        if state.empty:
            return
        step = "set `replace_existing: true` on the stream if they may go; if not, name another table with `into`"
        link = state.link(self.pipeline, self.stream)
        if link is None or (state.adopted and link.kind != Kind.REFRESH.value):
            yield self._refused(
                f"the table {self._name} already holds rows, and the first full refresh would delete them", step
            )
        elif any(snapshot.operation in ("append", "overwrite") for snapshot in state.foreign()):
            yield self._refused(
                f"other programs have put rows into the table {self._name}, and a full refresh would delete them", step
            )


def _one_of(columns: Collection[str]) -> str:
    return f"use one or more of: {', '.join(columns)}"
