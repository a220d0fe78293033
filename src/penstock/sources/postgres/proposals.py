"""Proposes options for each table of a schema, with the reasons.

Every proposal has passed `validate`. Nothing is guessed: if it is uncertain whether a cursor sees every change, a small
table is read whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import quote
from penstock.links.postgres.tables import KINDS, STORING_KINDS, Column, Index, Statistics, Table, describe_schema
from penstock.links.postgres.types import without_modifier
from penstock.ports import DiscoveredStream
from penstock.sources.postgres.options import StreamOptions
from penstock.sources.postgres.validate import RESERVED_COLUMN, create_index, validate, yaml_list

#: a table up to this size is read whole rather than sorted for every slice, or assumed to be append-only
SMALL_TABLE_BYTES = 16 << 20

_TIMES = ("timestamp with time zone", "timestamp without time zone")
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")
#: words in the name of a column with the time of the last change, and words that may be beside them
_CHANGED = {
    "update",
    "updated",
    "modified",
    "modify",
    "modification",
    "change",
    "changed",
    "mtime",
    "touched",
    "edited",
}
_CLOCK = re.compile(r"\b(now\s*\(|(transaction|statement|clock)_timestamp\s*\(|current_timestamp|localtimestamp)", re.I)
_BESIDE = {"last", "at", "on", "ts", "time", "date", "datetime", "timestamp", "tstamp", "utc", "dt", "row", "record"}


def discover(session: Session, schema: str) -> list[DiscoveredStream]:
    """All tables of a schema, each with a proposal or the reason why it cannot be read."""
    streams: list[DiscoveredStream] = []
    taken: set[str] = set()
    for table in describe_schema(lambda query: session.rows(query, table="the catalog"), schema):
        stream = stream_name(table.name.name, taken)
        taken.add(stream)
        assert table.statistics is not None
        streams.append(Proposer(session, stream, table, table.statistics).propose())
    return streams


def stream_name(table: str, taken: set[str]) -> str:
    """The table's own name if a stream may have it; else a name that no other stream has."""
    valid = not re.search(r'[\x00-\x1f\x7f-\x9f/."\u2028\u2029]', table) and table.strip() == table
    stem = name = table if valid else re.sub(r"\W+", "_", table).strip("_") or "table"
    number = 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name


@dataclass(frozen=True, slots=True)
class Proposal:
    """Options of a stream, and the reasons for them."""

    options: dict[str, Any]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposer:
    """Makes proposals for one table, the best first, and chooses the first that `validate` accepts."""

    session: Session
    stream: str
    table: Table
    statistics: Statistics

    def propose(self) -> DiscoveredStream:
        common, said = self._common_options()
        if not self.table.populated:
            step = f"REFRESH MATERIALIZED VIEW {self.table.name.quoted};"
            return self._describe({}, (), f"the materialized view was never filled: {step}")
        refusals: list[str] = []
        for proposal in self._proposals():
            options = {**common, **proposal.options}
            try:
                validate(self.session, self.stream, StreamOptions.model_validate(options), self.table.name.schema)
            except StreamRefused as refused:
                cursor = proposal.options.get("cursor")
                why = f"{refused.what}: {refused.next_step}"
                refusals.append(f"not by cursor {cursor}: {why}" if cursor else why)
                continue
            return self._describe(options, (*said, *refusals, *proposal.reasons), None)
        return self._describe({}, (), refusals[-1])

    def _describe(self, options: dict[str, Any], reasons: Sequence[str], refused: str | None) -> DiscoveredStream:
        return DiscoveredStream(
            name=self.stream,
            what=KINDS[self.table.kind],
            columns=tuple((column.name, column.type) for column in self.table.columns),
            primary_key=self.table.primary_key,
            rows=self.statistics.rows,
            bytes=self.statistics.bytes,
            options=options,
            reasons=tuple(reasons),
            refused=refused,
            stores_rows=self.table.kind in STORING_KINDS,
            options_if_renamed={"table": self._quoted_name},
        )

    @property
    def _quoted_name(self) -> str:
        quoted = self.table.name.name.replace('"', '""')
        return f'"{quoted}"'

    def _common_options(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The options of every proposal for this table: its name, and the columns if some cannot be read."""
        options: dict[str, Any] = {}
        reasons: list[str] = []
        if self.stream != self.table.name.name:
            options["table"] = self._quoted_name
        hidden = [column.name for column in self.table.columns if not column.may_select]
        kept = [column.name for column in self.table.columns if column.name not in (*hidden, RESERVED_COLUMN)]
        if kept and len(kept) < len(self.table.columns):
            options["columns"] = kept
            if hidden:
                reasons.append(f"left out, because user {self.session.user} may not read it: {', '.join(hidden)}")
            if RESERVED_COLUMN in (column.name for column in self.table.columns):
                reasons.append(f"left out, because penstock keeps that name for itself: {RESERVED_COLUMN}")
        return options, tuple(reasons)

    # ------------------------------------------------------------ the best first

    def _proposals(self) -> Iterator[Proposal]:
        whole: list[str] = []
        if self.table.kind not in ("r", "p"):
            whole.append(f"a {KINDS[self.table.kind]} has no key that could be proven")
        elif self.table.inherited:
            whole.append("other tables inherit from it, and their rows are read with it: no key covers them all")
        elif not self.table.primary_key:
            whole.append("it has no primary key, so no cursor can distinguish its rows")
        else:
            for column in self._cursor_candidates():
                proposal = self._propose_cursor(column, whole)
                if proposal:
                    yield proposal
            proposal = self._propose_number(whole)
            if proposal:
                yield proposal
        if not whole:
            whole.append("no column says when a row was last changed (such as updated_at)")
        yield Proposal({}, tuple(f"read whole in every run: {reason}" for reason in whole[:1]) + tuple(whole[1:]))

    def _cursor_candidates(self) -> list[Column]:
        """The most trustworthy column with the time of the last change, if there is one."""
        found = [
            column
            for column in self.table.columns
            if without_modifier(column.type) in _TIMES
            and (self._has_name_of_change(column.name) or self.table.stamping_trigger(column.name))
        ]

        def doubt(column: Column) -> tuple[bool, ...]:
            stamped, defaulted = self.table.stamping_trigger(column.name), _defaults_to_now(column)
            return (not stamped, not column.not_null, without_modifier(column.type) != _TIMES[0], not defaulted)

        return sorted(found, key=doubt)[:1]

    def _has_name_of_change(self, column: str) -> bool:
        words = _words(column)
        about = {*_words(self.table.name.name), *(word.rstrip("s") for word in _words(self.table.name.name))}
        joined = "".join(words) in {"lastupdate", "lastupdated", "lastmodified", "lastchanged", "lastmod"}
        return joined or bool(_CHANGED & set(words) and set(words) <= _CHANGED | _BESIDE | about)

    def _propose_cursor(self, column: Column, whole: list[str]) -> Proposal | None:
        """Incremental by the time of change; or None, with the reasons added to `whole`."""
        name = column.name
        index, tiebreaker = self._find_index(name)
        size = self.statistics.bytes or 0
        steps = []
        nulls = self._null_problem(column, indexed=index is not None)
        if nulls:
            whole += [nulls, "fill it in, and keep it filled:"]
            whole.append(f"ALTER TABLE {self.table.name.quoted} ALTER COLUMN {quote(name)} SET NOT NULL;")
            return None
        if index is None:
            keys = ", ".join(quote(each) for each in (name, *tiebreaker))
            create = create_index(self.table, (name, *tiebreaker))
            if size <= SMALL_TABLE_BYTES:
                rest = f", tiebreaker: {yaml_list(tiebreaker)}" if tiebreaker else ", unique: true"
                whole.append(f"it is small, and has no index on ({keys})")
                again = "if it has run before, run `penstock state migrate` on it"
                whole += [
                    f"to read only what changed, set cursor: {name}{rest} ({again}), and create the index:",
                    create,
                ]
                return None
            steps = [f"no index on ({keys}), so every slice sorts the table; better create one:", create]
        options: dict[str, Any] = {"cursor": name}
        options |= {"tiebreaker": _one_or_more(tiebreaker)} if tiebreaker else {"unique": True}
        if index is None:
            options["index"] = "optional"
        if not column.not_null:
            steps.append(f"{name} is nullable (no NULLs at present); the stream is refused if one appears")
        return Proposal(options, (f"cursor {name}: {self._explain_trust(column)}", *_explain_precision(column), *steps))

    def _explain_trust(self, column: Column) -> str:
        stamping = self.table.stamping_trigger(column.name)
        if stamping:
            return f"the trigger {stamping.name} sets it with every update"
        if _defaults_to_now(column):
            return "new rows get the time by default; updates are seen only if the application sets it too"
        return "nothing in the database sets it: changes are seen only if the application sets it every time"

    def _find_index(self, cursor: str) -> tuple[Index | None, tuple[str, ...]]:
        """An index that begins with the cursor and the rest of the primary key, and the tiebreaker in its order."""
        rest = tuple(name for name in self.table.primary_key if name != cursor)
        for index in self.table.indexes:
            follows = index.columns[1 : 1 + len(rest)]
            if index.columns[0] == cursor and set(follows) == set(rest) and index.ordered:
                return index, follows
        return None, rest

    def _null_problem(self, column: Column, *, indexed: bool) -> str | None:
        """Why NULLs prevent a column from being the cursor; None: they do not."""
        if column.not_null:
            return None
        if not indexed and (self.statistics.bytes or 0) > SMALL_TABLE_BYTES:
            return f"{column.name} is nullable, and checking for NULLs would read the whole table"
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} IS NULL)").format(
            self.table.name.sql, sql.Identifier(column.name)
        )
        if not column.may_select or not self.session.rows(query, table=str(self.table.name))[0][0]:
            return None
        return f"{column.name} is NULL in some rows, which a cursor would never reach"

    def _propose_number(self, whole: list[str]) -> Proposal | None:
        """Incremental by a number that only new rows take; only where all evidence says that rows stay as they are.

        A small table whose key is no identity column is cheap to read whole, which sees every change.
        """
        key, statistics = self.table.primary_key, self.statistics
        column = self.table.column(key[0])
        if len(key) != 1 or column is None or not column.numbered:
            return None
        if not column.identity and (statistics.bytes or 0) <= SMALL_TABLE_BYTES:
            return None
        changed = statistics.updated + statistics.deleted
        counted = statistics.inserted >= max(1, statistics.rows or 0)
        if without_modifier(column.type) not in _WHOLE_NUMBERS or changed or not counted:
            if changed:
                whole.append(
                    f"its rows are changed ({statistics.updated} updates, {statistics.deleted} deletes so far)"
                )
            return None
        if self._cursor_candidates():
            return None
        reason = (
            f"cursor {key[0]}: numbered by a sequence, and by its statistics no row was ever updated or deleted. "
            "An update would not be seen"
        )
        return Proposal({"cursor": key[0], "unique": True}, (reason,))


def _defaults_to_now(column: Column) -> bool:
    return bool(_CLOCK.search(column.default or ""))


def _explain_precision(column: Column) -> list[str]:
    digits = precision(column.type)
    if digits is None:
        return []
    return [f"{column.name} has only {digits} fractional digits: a second change within the same time is not seen"]


def precision(type_: str) -> int | None:
    """The fractional digits of a timestamp; None: all that Postgres has."""
    found = re.match(r"timestamp\((\d)\)", type_)
    return int(found[1]) if found and int(found[1]) < 6 else None


def _words(name: str) -> list[str]:
    """`lastUpdatedAt`, `last_updated_at` → last, updated, at."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def _one_or_more(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)
