"""The key and digest of an API's objects as a comparison sees them. See `ports.comparing` for the texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.core.ranges import Key
from penstock.core.types import INTEGERS, Decimal, Plain, Type
from penstock.ports import ComparedColumns
from penstock.sources.rest.content import ListContent
from penstock.sources.rest.reader import CHANGE, SpoolReader, columns_of
from penstock.sources.rest.times import Unit

if TYPE_CHECKING:
    import pyarrow as pa

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMPS = (Plain.TIMESTAMP, Plain.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One object of a page."""

    key: Key
    digest: str
    #: a field says that it is deleted
    is_deleted: bool


class RowDigests:
    """Makes rows of the records of pages."""

    def __init__(self, stream: str, content: ListContent, columns: ComparedColumns) -> None:
        wanted = [*columns.key, *columns.values]
        by_name = {column.name: column for column in content.columns}
        read = columns_of([by_name[column.name] for column in wanted], content.paths)
        self._reader = SpoolReader(stream, read, content.unit, content.id, content.changes)
        self._types = [column.type for column in wanted]
        self._key_length = len(columns.key)

    def read(self, texts: Sequence[bytes]) -> list[ComparedRow]:
        """The rows of records, as the list's pages have them."""
        if not texts:
            return []
        batch = self._reader.read_lines(texts)
        pairs = zip(batch.columns, self._types, strict=False)
        values = [texts_of(array, type_) for array, type_ in pairs]
        kinds = batch.column(CHANGE).to_pylist() if CHANGE in batch.schema.names else ["upsert"] * len(texts)
        return [
            ComparedRow(tuple(row[: self._key_length]), digest_row(row), kind == "delete")
            for row, kind in zip(zip(*values, strict=True), kinds, strict=True)
        ]


def digest_row(texts: Sequence[str | None]) -> str:
    """The digest of a row's texts, key first."""
    whole = "".join("-" if text is None else f"{len(text)}:{text}" for text in texts)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def explain_no_text(type_: Type) -> str | None:
    """Why values of a type are not compared; None: they are."""
    if type_ is Plain.JSON:
        return "it is JSON, and a list may write an object in another way than before"
    if type_ in (*INTEGERS, *_TIMESTAMPS, Plain.BOOL, Plain.STRING, Plain.DATE) or isinstance(type_, Decimal):
        return None
    return f"{type_} has no exact text"


def texts_of(array: pa.Array, type_: Type) -> list[str | None]:
    """The texts of a column's values."""
    import pyarrow as pa

    if type_ in _TIMESTAMPS:
        return [None if each is None else _timestamp(each) for each in array.cast(pa.int64()).to_pylist()]
    write: Callable[[Any], str] = str
    if type_ is Plain.BOOL:
        write = _bool
    elif isinstance(type_, Decimal):
        write = _decimal
    return [None if each is None else write(each) for each in array.to_pylist()]


def step_of(text: str, type_: Type, unit: Unit) -> int | None:
    """The time of a key in the stream's unit; None: the text is no such time."""
    try:
        return unit.of(datetime.fromisoformat(text).replace(tzinfo=UTC)) if type_ in _TIMESTAMPS else int(text)
    except (ValueError, OverflowError):
        return None


def _timestamp(micros: int) -> str:
    moment = _BEGINNING + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _decimal(value: Any) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
