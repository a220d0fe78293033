"""How each table of a schema would best be read, with the reasons in words. Judges what `relations` and `catalog` tell.

Every proposal has passed `validate`. What cannot be known is said, never guessed: where it is in doubt whether a cursor
sees every change, a table of modest size is read whole.
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
from penstock.links.postgres.types import without_modifier
from penstock.ports import DiscoveredStream
from penstock.sources.postgres.catalog import Column, Index, Table, describe
from penstock.sources.postgres.options import StreamOptions
from penstock.sources.postgres.relations import KINDS, Relation, relations
from penstock.sources.postgres.validate import RESERVED, validate, yaml_list

#: a table up to this size is read whole rather than sorted for every slice, or trusted to be only added to
SMALL = 16 << 20

_TIMES = ("timestamp with time zone", "timestamp without time zone")
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")
#: words that make a name say when a row was last changed, and words that may stand beside them
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
_BESIDE = {"last", "at", "on", "ts", "time", "date", "datetime", "timestamp", "tstamp", "utc", "dt", "row", "record"}


def offers(session: Session, schema: str) -> list[DiscoveredStream]:
    """Everything in a schema, each with a proposal or the reason why it cannot be read."""
    found: list[DiscoveredStream] = []
    taken: set[str] = set()
    for relation in relations(session, schema):
        stream = stream_name(relation.name.name, taken)
        taken.add(stream)
        table = describe(session, relation.name, (), stream=stream)
        if table is not None:
            found.append(Judge(session, stream, relation, table).offered())
    return found


def stream_name(table: str, taken: set[str]) -> str:
    """The table's own name where a stream may have it; else one that no other stream has."""
    fine = not re.search(r'[\x00-\x1f\x7f-\x9f/."\u2028\u2029]', table) and table.strip() == table
    stem = name = table if fine else re.sub(r"\W+", "_", table).strip("_") or "table"
    number = 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    return name


@dataclass(frozen=True, slots=True)
class Proposal:
    """Options of a stream, and why they are these."""

    options: dict[str, Any]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judge:
    """One relation: proposals from the best down, the first that `validate` accepts."""

    session: Session
    stream: str
    relation: Relation
    table: Table

    def offered(self) -> DiscoveredStream:
        always, said = self._always()
        if not self.relation.populated:
            step = f"REFRESH MATERIALIZED VIEW {self._sql};"
            return self._offer({}, (), f"the materialized view was never filled: {step}")
        refusals: list[str] = []
        for proposal in self._proposals():
            options = {**always, **proposal.options}
            try:
                validate(self.session, self.stream, StreamOptions.model_validate(options), self.relation.name.schema)
            except StreamRefused as refused:
                cursor = proposal.options.get("cursor")
                why = f"{refused.what}: {refused.next_step}"
                refusals.append(f"not by cursor {cursor}: {why}" if cursor else why)
                continue
            return self._offer(options, (*said, *refusals, *proposal.reasons), None)
        return self._offer({}, (), refusals[-1])

    def _offer(self, options: dict[str, Any], reasons: Sequence[str], refused: str | None) -> DiscoveredStream:
        return DiscoveredStream(
            name=self.stream,
            what=KINDS[self.relation.kind],
            columns=tuple((column.name, column.type) for column in self.table.columns),
            primary_key=self.table.primary_key,
            rows=self.relation.rows,
            bytes=self.relation.bytes,
            options=options,
            reasons=tuple(reasons),
            refused=refused,
        )

    def _always(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """What every proposal for this relation says: its table, and the columns if some cannot travel."""
        options: dict[str, Any] = {}
        reasons: list[str] = []
        if self.stream != self.relation.name.name:
            quoted = self.relation.name.name.replace('"', '""')
            options["table"] = f'"{quoted}"'
        hidden = [column.name for column in self.table.columns if not column.may_select]
        kept = [column.name for column in self.table.columns if column.name not in (*hidden, RESERVED)]
        if kept and len(kept) < len(self.table.columns):
            options["columns"] = kept
            if hidden:
                reasons.append(f"left out, because user {self.session.user} may not read it: {', '.join(hidden)}")
            if RESERVED in (column.name for column in self.table.columns):
                reasons.append(f"left out, because penstock keeps that name for itself: {RESERVED}")
        return options, tuple(reasons)

    # ------------------------------------------------------------ from the best down

    def _proposals(self) -> Iterator[Proposal]:
        whole: list[str] = []
        if self.relation.kind not in ("r", "p"):
            whole.append(f"a {KINDS[self.relation.kind]} has no key that could be proven")
        elif self.table.inherited:
            whole.append("other tables inherit from it, and their rows are read with it: no key covers them all")
        elif not self.table.primary_key:
            whole.append("it has no primary key, so no cursor can tell its rows apart")
        else:
            for column in self._cursors():
                proposal = self._by_cursor(column, whole)
                if proposal:
                    yield proposal
            proposal = self._by_number(whole)
            if proposal:
                yield proposal
        if not whole:
            whole.append("no column says when a row was last changed (such as updated_at)")
        yield Proposal({}, tuple(f"read whole in every run: {reason}" for reason in whole[:1]) + tuple(whole[1:]))

    def _cursors(self) -> list[Column]:
        """Columns that say when a row was last changed, the most trustworthy first."""
        found = [
            column
            for column in self.table.columns
            if without_modifier(column.type) in _TIMES
            and (self._named(column.name) or self.relation.keeper(column.name))
        ]

        def doubt(column: Column) -> tuple[bool, ...]:
            kept, born = self.relation.keeper(column.name), self.relation.born(column.name)
            return (not kept, not column.not_null, without_modifier(column.type) != _TIMES[0], not born)

        return sorted(found, key=doubt)[:1]

    def _named(self, column: str) -> bool:
        words = _words(column)
        about = {*_words(self.relation.name.name), *(word.rstrip("s") for word in _words(self.relation.name.name))}
        joined = "".join(words) in {"lastupdate", "lastupdated", "lastmodified", "lastchanged", "lastmod"}
        return joined or bool(_CHANGED & set(words) and set(words) <= _CHANGED | _BESIDE | about)

    def _by_cursor(self, column: Column, whole: list[str]) -> Proposal | None:
        """Incremental by a time of change; or what to do so that it could be, said in `whole`."""
        name, index, tiebreaker = self._index(column.name)
        size = self.relation.bytes or 0
        steps = []
        nulls = self._nulls(column, indexed=index is not None)
        if nulls:
            whole += [nulls, "fill it in, and see to it that it stays so:"]
            whole.append(f"ALTER TABLE {self._sql} ALTER COLUMN {quote(name)} SET NOT NULL;")
            return None
        if index is None:
            keys = ", ".join(quote(each) for each in (name, *tiebreaker))
            concurrently = "" if self.relation.kind == "p" else " CONCURRENTLY"
            make = f"CREATE INDEX{concurrently} ON {self._sql} ({keys});"
            if size <= SMALL:
                rest = f", tiebreaker: {yaml_list(tiebreaker)}" if tiebreaker else ", unique: true"
                whole.append(f"it is small, and has no index on ({keys})")
                again = "if it has run before, run `penstock state migrate` on it"
                whole += [f"to read only what changed, set cursor: {name}{rest} ({again}), and make the index:", make]
                return None
            steps = [f"no index on ({keys}), so every slice sorts the table; better make one:", make]
        options: dict[str, Any] = {"cursor": name}
        options |= {"tiebreaker": _one_or_more(tiebreaker)} if tiebreaker else {"unique": True}
        if index is None:
            options["index"] = "optional"
        if not column.not_null:
            steps.append(
                f"{name} may be NULL, and is in no row now; should it be, the stream is refused until it is filled"
            )
        return Proposal(options, (f"cursor {name}: {self._trust(column)}", *self._coarse(column), *steps))

    def _trust(self, column: Column) -> str:
        keeper = self.relation.keeper(column.name)
        if keeper:
            return f"the trigger {keeper.name} sets it with every update"
        if self.relation.born(column.name):
            return "new rows get the time by default; updates are seen only if the application sets it too"
        return "nothing in the database sets it: changes are seen only if the application sets it every time"

    def _coarse(self, column: Column) -> list[str]:
        digits = precision(column.type)
        if digits is None:
            return []
        return [
            f"{column.name} has only {digits} digits below the second: a second change within that time is not seen"
        ]

    def _index(self, cursor: str) -> tuple[str, Index | None, tuple[str, ...]]:
        """An index that begins with the cursor and the rest of the primary key, and the tiebreaker in its order."""
        rest = tuple(name for name in self.table.primary_key if name != cursor)
        for index in self.table.indexes:
            follows = index.columns[1 : 1 + len(rest)]
            if index.columns[0] == cursor and set(follows) == set(rest) and (index.ascending or index.descending):
                return cursor, index, follows
        return cursor, None, rest

    def _nulls(self, column: Column, *, indexed: bool) -> str | None:
        """Why NULLs keep a column from being the cursor; None: they do not."""
        if column.not_null:
            return None
        if not indexed and (self.relation.bytes or 0) > SMALL:
            return f"{column.name} may be NULL, and finding out whether it is would read the whole table"
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} IS NULL)").format(
            self.relation.name.sql, sql.Identifier(column.name)
        )
        if not column.may_select or not self.session.rows(query, table=str(self.relation.name))[0][0]:
            return None
        return f"{column.name} is NULL in some rows, which a cursor would never reach"

    def _by_number(self, whole: list[str]) -> Proposal | None:
        """Incremental by a number that only new rows take; only where all evidence says that rows stay as they are.

        A small table whose key is no identity column is cheap to read whole, which sees every change.
        """
        key, relation = self.table.primary_key, self.relation
        if len(key) != 1 or key[0] not in relation.numbered:
            return None
        if key[0] not in relation.identities and (relation.bytes or 0) <= SMALL:
            return None
        column = self.table.column(key[0])
        changed = relation.updated + relation.deleted
        watched = relation.inserted >= max(1, relation.rows or 0)
        if column is None or without_modifier(column.type) not in _WHOLE_NUMBERS or changed or not watched:
            if changed:
                whole.append(f"its rows are changed ({relation.updated} updates, {relation.deleted} deletes so far)")
            return None
        if self._cursors():
            return None
        reason = (
            f"cursor {key[0]}: numbered by a sequence, and by its statistics no row was ever updated or deleted. "
            "An update would not be seen"
        )
        return Proposal({"cursor": key[0], "unique": True}, (reason,))

    @property
    def _sql(self) -> str:
        return self.relation.name.quoted


def precision(type_: str) -> int | None:
    """The digits below the second that a timestamp is cut to; None: it has all that Postgres knows."""
    found = re.match(r"timestamp\((\d)\)", type_)
    return int(found[1]) if found and int(found[1]) < 6 else None


def _words(name: str) -> list[str]:
    """`lastUpdatedAt`, `last_updated_at` → last, updated, at."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def _one_or_more(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)
