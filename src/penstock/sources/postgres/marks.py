"""A stream's mark: the key of the last row read, as Postgres text, or the run that read a table whole.

Texts are kept exactly and never parsed. Equal texts are equal keys; which is greater, only Postgres says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import row_of, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.content import KeyColumn, TableContent, names
from penstock.sources.postgres.identity import TableIdentity

#: types whose order and text do not differ: a column may change from one to another under a mark
_ALIKE = ({"smallint", "integer", "bigint"}, {"text", "character varying"})


@dataclass(frozen=True, slots=True)
class KeysetMark:
    """Everything up to a key has been read."""

    #: None: nothing yet; only what the horizon waits for is kept
    key: Key | None
    columns: tuple[KeyColumn, ...]
    unique: bool
    #: the server's timeline when it was made; None where the server did not tell
    timeline: int | None = None
    #: what the horizon knew when it was made; see the room horizon
    proof: Document | None = None
    #: oids of the partitions that it speaks of; (): of all that there are
    leaves: tuple[str, ...] = ()
    #: where the server was in its log when it was made; None where the server did not tell
    lsn: str | None = None
    #: the table that it was made in; None: not noted yet
    table: TableIdentity | None = None
    #: rows that shared its cursor value when it was made, up to its key; None: not counted
    ties: int | None = None

    def mark(self) -> Mark:
        return Mark.of(self.document())

    def document(self) -> Document:
        said: Document = {
            "key": None if self.key is None else list(self.key),
            "columns": list(names(self.columns)),
            "types": [column.type for column in self.columns],
            "unique": self.unique,
            "timeline": self.timeline,
            "proof": self.proof,
        }
        noted: Document = {
            "leaves": list(self.leaves) or None,
            "lsn": self.lsn,
            "table": self.table.document() if self.table else None,
            "ties": self.ties,
        }
        return {**said, **{name: value for name, value in noted.items() if value is not None}}

    def words(self) -> str:
        if self.key is None:
            return "nothing read yet"
        return "up to " + _spelt(self.columns, self.key)


@dataclass(frozen=True, slots=True)
class LoadMark:
    """The first load has come so far; once it is through, the keyset goes on from `then`."""

    #: keys or blocks
    by: str
    #: the columns whose ranges are read; () for blocks
    columns: tuple[KeyColumn, ...]
    #: the last key that was read, or the first block (and the place in it) that was not; None: about to begin
    after: Key | None
    #: the horizon that was taken before the load began: rows above it are the keyset's
    then: KeysetMark
    #: what the load must know to go on (file node, leaves); see loading.py
    terms: Document

    def mark(self) -> Mark:
        return Mark.of(
            {
                "load": {
                    "by": self.by,
                    "columns": list(names(self.columns)),
                    "types": [column.type for column in self.columns],
                    "after": None if self.after is None else list(self.after),
                    "terms": self.terms,
                },
                "then": self.then.document(),
            }
        )

    def words(self) -> str:
        done: Any = self.terms.get("done")
        of = f"{len(done)} of {len(self.then.leaves)} partitions" if done else None
        if self.after is None:
            return f"first load, {of or 'about to begin'}"
        at = _spelt(self.columns, self.after) if self.columns else f"block {self.after[0]}"
        within = f" of {self.terms['name']}" if "name" in self.terms else ""
        return f"first load, up to {at}{within}" + (f", after {of}" if of else "")


@dataclass(frozen=True, slots=True)
class RefreshMark:
    """The table has been read whole by a run."""

    run: str

    def mark(self) -> Mark:
        return Mark.of({"refresh": self.run})


Ours = KeysetMark | LoadMark | RefreshMark


def read(mark: Mark) -> Ours:
    """A mark of ours; ValueError if it is not one."""
    document = mark.document
    if document.keys() == {"refresh"} and isinstance(document["refresh"], str):
        return RefreshMark(document["refresh"])
    try:
        if document.keys() == {"load", "then"}:
            return _load(document["load"], document["then"])
        if "key" in document:
            return _keyset(document)
    except (KeyError, TypeError, AttributeError):
        pass
    raise ValueError(f"not the mark of a postgres stream: {mark.text}")


def _keyset(document: Any) -> KeysetMark:
    key = None if document["key"] is None else _texts(document["key"])
    columns = _columns(document)
    if not isinstance(document["unique"], bool) or (key is not None and len(key) != len(columns)):
        raise TypeError
    timeline, proof, lsn, ties = (document.get(name) for name in ("timeline", "proof", "lsn", "ties"))
    leaves, table = _texts(document.get("leaves", [])), document.get("table")
    table = TableIdentity.read(table) if table else None
    return KeysetMark(key, columns, document["unique"], timeline, proof, leaves, lsn, table, ties)


def _load(load: Any, then: Any) -> LoadMark:
    after = None if load["after"] is None else _texts(load["after"])
    return LoadMark(load["by"], _columns(load), after, _keyset(then), load["terms"])


def _columns(document: Any) -> tuple[KeyColumn, ...]:
    pairs = zip(_texts(document["columns"]), _texts(document["types"]), strict=True)
    return tuple(KeyColumn(*pair) for pair in pairs)


def _spelt(columns: Sequence[KeyColumn], key: Key) -> str:
    return ", ".join(f"{column.column} {text}" for column, text in zip(columns, key, strict=True))


def describe(mark: Mark | None) -> str:
    """For people."""
    if mark is None:
        return "the beginning"
    try:
        ours = read(mark)
    except ValueError:
        return f"not a mark of a postgres stream: {mark.text}"
    return f"read whole by run {ours.run[:8]}" if isinstance(ours, RefreshMark) else ours.words()


def noted(mark: Mark, **said: Any) -> Mark:
    """The same mark with fields of its keyset (where the server was, which table it is) as they are now."""
    ours = read(mark)
    if isinstance(ours, RefreshMark):
        return mark
    if isinstance(ours, LoadMark):
        return replace(ours, then=replace(ours.then, **said)).mark()
    return replace(ours, **said).mark()


def along_the_cursor(mark: Mark | None) -> KeysetMark | None:
    """Where a mark goes on along the cursor: itself, or what follows a first load; None: it has no cursor."""
    ours = read(mark) if mark else None
    if isinstance(ours, LoadMark):
        return ours.then
    return ours if isinstance(ours, KeysetMark) else None


def accept(session: Session, stream: str, last: Position, now: TableContent) -> None:
    """StreamRefused if a stored position was made under another key, database or source."""
    if last.mark is None:
        return
    reset = f"run `penstock state reset FILE --stream {stream}` to read the table from the beginning"
    try:
        mark, before = read(last.mark), TableContent.parse(last.content)
    except ValueError as error:
        raise StreamRefused(
            f"the stored mark does not fit: {error}",
            next_step=f"name the right pipeline and store, or {reset}",
            stream=stream,
        ) from None
    if not before.identity.same(now.identity):
        raise StreamRefused(
            f"the mark was made in {_database(before)}, and now {_database(now)} answers: another database",
            next_step=f"point `url` back at the first one, or {reset}",
            stream=stream,
        )
    if before.table != now.table:
        raise StreamRefused(
            f"the mark was made in table {before.table}, and the stream now reads {now.table}",
            next_step=f"set `table: {before.table}` again, or {reset}",
            stream=stream,
        )
    was, is_ = _way(mark), _key_way(now.key, unique=now.unique)
    if was != is_:
        raise StreamRefused(
            f"the mark was made with {was}, and the stream now has {is_}",
            next_step=f"go back to {was}; or run `penstock state migrate FILE --stream {stream}`, which keeps what was "
            f"delivered elsewhere and reads the table from the beginning; or, where the sink has a key, {reset}",
            stream=stream,
        )
    if not isinstance(mark, RefreshMark):
        _fits(session, stream, mark.then if isinstance(mark, LoadMark) else mark, now, reset)


def _fits(session: Session, stream: str, mark: KeysetMark, now: TableContent, reset: str) -> None:
    for old, new in zip(mark.columns, now.key, strict=True):
        if not alike(old.type, new.type):
            raise StreamRefused(
                f"the mark was made when {old.column} of {now.table} was {old.type}; it is {new.type} now",
                next_step=f"change the column back, or {reset}",
                stream=stream,
            )
    if mark.key is None:
        return
    wrong = session.check(sql.SQL("SELECT {}").format(row_of(bound(now.key, mark.key))))
    if wrong:
        raise StreamRefused(
            f"the stored mark does not fit {now.table}: {wrong}",
            next_step=f"restore the store, or {reset}",
            stream=stream,
        )


def alike(old: str, new: str) -> bool:
    """Whether a key of one type can be compared with a column of another without a difference."""
    return old == new or any({without_modifier(old), without_modifier(new)} <= family for family in _ALIKE)


def bound(columns: Sequence[KeyColumn], key: Key) -> list[sql.Composed]:
    """A key's texts as typed literals."""
    return [typed_literal(text, column.type) for column, text in zip(columns, key, strict=True)]


def _way(mark: Ours) -> str:
    if isinstance(mark, RefreshMark):
        return _key_way((), unique=False)
    if isinstance(mark, LoadMark):
        mark = mark.then
    return _key_way(mark.columns, unique=mark.unique)


def _key_way(key: Sequence[KeyColumn], *, unique: bool) -> str:
    """How a stream is read, in words that are equal only if the ways are."""
    if not key:
        return "no cursor (a full refresh)"
    cursor, *tiebreaker = names(key)
    return f"cursor {cursor} and " + ("`unique: true`" if unique else f"tiebreaker {', '.join(tiebreaker)}")


def _database(content: TableContent) -> str:
    identity = content.identity
    where = f" of cluster {identity.system}" if identity.system else ""
    return f"database {identity.database} (oid {identity.oid}){where}"


def _texts(value: Any) -> Key:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("its key must be a list of texts")
    return tuple(value)
