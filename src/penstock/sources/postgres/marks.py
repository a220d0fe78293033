"""A stream's mark: the key of the last row read, as Postgres text, or the run that read the whole table.

Texts are stored unchanged and never parsed. Equal texts are equal keys; only Postgres compares different ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import row_of
from penstock.links.postgres.tables import NumberSequence, Table
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.content import KeyColumn, TableContent, column_names

#: types with the same order and text: a column may change from one to another under a mark
_SAME_ORDER = ({"smallint", "integer", "bigint"}, {"text", "character varying"})


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The table that a mark was made in."""

    #: another one after the table was dropped and created again, or if another table has its name
    oid: str
    #: the file that holds its rows: replaced by TRUNCATE or a rewrite; None: partitions hold them
    file: str | None
    #: None: no sequence numbers the cursor
    sequence: NumberSequence | None

    @property
    def token(self) -> str:
        """The value of `continues` that confirms this table."""
        return "/".join((self.oid, self.file or "0", (self.sequence and self.sequence.file) or "0"))

    def document(self) -> Document:
        number = self.sequence
        sequence: Document = {"name": number.name, "file": number.file, "last": number.last} if number else {}
        return {"oid": self.oid, "file": self.file, **({"sequence": sequence} if sequence else {})}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> TableIdentity:
        """From a mark; KeyError or TypeError if a postgres stream did not make it."""
        sequence = document.get("sequence")
        return cls(document["oid"], document["file"], NumberSequence(**sequence) if sequence else None)

    @classmethod
    def of(cls, table: Table) -> TableIdentity:
        return cls(table.oid, table.file, table.sequence)


@dataclass(frozen=True, slots=True)
class KeysetMark:
    """All rows up to a key have been read."""

    #: None: nothing is read yet, and the mark only holds what the horizon waits for
    key: Key | None
    columns: tuple[KeyColumn, ...]
    unique: bool
    #: the server's timeline when it was made; None if the server did not show it
    timeline: int | None = None
    #: the horizon's certificate when it was made; see the package horizon
    proof: Document | None = None
    #: oids of the partitions that it covers; (): all partitions
    leaves: tuple[str, ...] = ()
    #: the server's position in its log when it was made; None if the server did not show it
    lsn: str | None = None
    #: the table that it was made in; None: not recorded yet
    table: TableIdentity | None = None
    #: rows that shared its cursor value when it was made, up to its key; None: not counted
    ties: int | None = None

    def mark(self) -> Mark:
        return Mark.of(self.document())

    def document(self) -> Document:
        required: Document = {
            "key": to_list(self.key),
            "columns": list(column_names(self.columns)),
            "types": [column.type for column in self.columns],
            "unique": self.unique,
            "timeline": self.timeline,
            "proof": self.proof,
        }
        optional: Document = {
            "leaves": list(self.leaves) or None,
            "lsn": self.lsn,
            "table": self.table.document() if self.table else None,
            "ties": self.ties,
        }
        return {**required, **{name: value for name, value in optional.items() if value is not None}}

    def describe(self) -> str:
        if self.key is None:
            return "nothing read yet"
        return "up to " + _describe_key(self.columns, self.key)


@dataclass(frozen=True, slots=True)
class LoadMark:
    """A position in the first load; after the load the keyset continues from `then`."""

    #: keys or blocks
    by: str
    #: the columns whose ranges are loaded; () for blocks
    columns: tuple[KeyColumn, ...]
    #: the last key that was read, or the first block and offset that were not; None: nothing is read yet
    after: Key | None
    #: the horizon that was taken before the load began: rows above it are the keyset's
    then: KeysetMark
    #: what the load needs to continue (file, partitions); see the package load
    terms: Document

    def mark(self) -> Mark:
        return Mark.of(
            {
                "load": {
                    "by": self.by,
                    "columns": list(column_names(self.columns)),
                    "types": [column.type for column in self.columns],
                    "after": to_list(self.after),
                    "terms": self.terms,
                },
                "then": self.then.document(),
            }
        )

    def describe(self) -> str:
        done: Any = self.terms.get("done")
        of = f"{len(done)} of {len(self.then.leaves)} partitions" if done else None
        if self.after is None:
            return f"first load, {of or 'about to begin'}"
        at = _describe_key(self.columns, self.after) if self.columns else f"block {self.after[0]}"
        within = f" of {self.terms['name']}" if "name" in self.terms else ""
        return f"first load, up to {at}{within}" + (f", after {of}" if of else "")


@dataclass(frozen=True, slots=True)
class RefreshMark:
    """A run has read the whole table."""

    run: str

    def mark(self) -> Mark:
        return Mark.of({"refresh": self.run})


StreamMark = KeysetMark | LoadMark | RefreshMark


def read(mark: Mark) -> StreamMark:
    """Read a mark; ValueError if a postgres stream did not make it."""
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


def _describe_key(columns: Sequence[KeyColumn], key: Key) -> str:
    return ", ".join(f"{column.column} {text}" for column, text in zip(columns, key, strict=True))


def describe(mark: Mark | None) -> str:
    """A mark for messages."""
    if mark is None:
        return "the beginning"
    try:
        ours = read(mark)
    except ValueError:
        return f"not a mark of a postgres stream: {mark.text}"
    return f"read whole by run {ours.run[:8]}" if isinstance(ours, RefreshMark) else ours.describe()


def update_keyset(mark: Mark, **fields: Any) -> Mark:
    """The mark with new values for fields of its keyset mark, such as the server's position."""
    ours = read(mark)
    if isinstance(ours, LoadMark):
        return replace(ours, then=replace(ours.then, **fields)).mark()
    return mark if isinstance(ours, RefreshMark) else replace(ours, **fields).mark()


def keyset_mark(mark: Mark | None) -> KeysetMark | None:
    """The keyset mark: the mark itself, or the one that follows a first load; None: it has no cursor."""
    ours = read(mark) if mark else None
    if isinstance(ours, LoadMark):
        return ours.then
    return ours if isinstance(ours, KeysetMark) else None


def require_keyset(mark: Mark | None, *, stream: str) -> KeysetMark | None:
    """The mark as a keyset mark; StreamRefused if it is of another kind."""
    ours = read(mark) if mark else None
    if ours is None or isinstance(ours, KeysetMark):
        return ours
    raise StreamRefused("the stored mark is not one of a keyset", next_step="reset the stream", stream=stream)


def to_list(key: Key | None) -> list[str] | None:
    return None if key is None else list(key)


def to_key(texts: Sequence[str] | None) -> Key | None:
    return None if texts is None else tuple(texts)


def accept(session: Session, stream: str, last: Position, now: TableContent) -> None:
    """StreamRefused if a stored position was made under another key, database or source."""
    if last.mark is None:
        return
    reset = f"run `penstock state reset FILE --stream {stream}` to read the table from the beginning"
    try:
        keyset, before = keyset_mark(last.mark), TableContent.parse(last.content)
    except ValueError as error:
        raise StreamRefused(
            f"the stored mark does not fit: {error}",
            next_step=f"name the right pipeline and store, or {reset}",
            stream=stream,
        ) from None
    if not before.identity.same(now.identity):
        raise StreamRefused(
            f"the mark was made in {before.identity}, and now {now.identity} answers: another database",
            next_step=f"point `url` back at the first one, or {reset}",
            stream=stream,
        )
    if before.table != now.table:
        raise StreamRefused(
            f"the mark was made in table {before.table}, and the stream now reads {now.table}",
            next_step=f"set `table: {before.table}` again, or {reset}",
            stream=stream,
        )
    was = _describe_key_columns(keyset.columns if keyset else (), unique=keyset is not None and keyset.unique)
    is_ = _describe_key_columns(now.key, unique=now.unique)
    if was != is_:
        raise StreamRefused(
            f"the mark was made with {was}, and the stream now has {is_}",
            next_step=f"go back to {was}; or run `penstock state migrate FILE --stream {stream}`, which keeps what was "
            f"delivered elsewhere and reads the table from the beginning; or, where the sink has a key, {reset}",
            stream=stream,
        )
    if keyset:
        _check_key(session, stream, keyset, now, reset)


def _check_key(session: Session, stream: str, mark: KeysetMark, now: TableContent, reset: str) -> None:
    for old, new in zip(mark.columns, now.key, strict=True):
        if not have_same_order(old.type, new.type):
            raise StreamRefused(
                f"the mark was made when {old.column} of {now.table} was {old.type}; it is {new.type} now",
                next_step=f"change the column back, or {reset}",
                stream=stream,
            )
    if mark.key is None:
        return
    wrong = session.find_error(sql.SQL("SELECT {}").format(row_of(now.literals(mark.key))))
    if wrong:
        raise StreamRefused(
            f"the stored mark does not fit {now.table}: {wrong}",
            next_step=f"restore the store, or {reset}",
            stream=stream,
        )


def have_same_order(old: str, new: str) -> bool:
    """Whether a key of one type can be compared with a column of another, with the same result."""
    return old == new or any({without_modifier(old), without_modifier(new)} <= family for family in _SAME_ORDER)


def _describe_key_columns(key: Sequence[KeyColumn], *, unique: bool) -> str:
    """How a stream is read; two descriptions are equal only if the keys are."""
    if not key:
        return "no cursor (a full refresh)"
    cursor, *tiebreaker = column_names(key)
    return f"cursor {cursor} and " + ("`unique: true`" if unique else f"tiebreaker {', '.join(tiebreaker)}")


def _texts(value: Any) -> Key:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("its key must be a list of strings")
    return tuple(value)
