"""Cuts a page into its records: each as a value and as its own text, so that nothing is lost by writing it again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypedDict

from penstock.links.http.failures import Malformed

_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


class NoRecords(ValueError):
    """A page that has no list of records where it should be."""


@dataclass(frozen=True, slots=True)
class Page:
    """The records of a page, in its order."""

    #: each record's value; of an object, only the fields that were asked for
    records: list[Any]
    #: each record's own text, on one line
    texts: list[bytes]
    #: what stands beside the records; at least the fields that were asked for
    fields: dict[str, Any]


def cut(
    body: bytes, path: tuple[str, ...], fields: tuple[str, ...] | None = None, beside: tuple[str, ...] = ()
) -> Page:
    """Cut a page whose records lie at `path`; Malformed if it is no JSON, NoRecords if they are not there.

    With `fields`, values are made only of those fields of a record. `beside` are the paths of the fields of the page
    that are needed beside the records.
    """
    try:
        text = body.decode()
        return _cut_quickly(body, path, fields, beside) or _Cutter(text).page(path)
    except (UnicodeDecodeError, json.JSONDecodeError, IndexError) as error:
        raise Malformed(str(error)[:100]) from None


def look_up(value: Any, path: str) -> Any:
    """The value at a path with dots; None if there is none."""
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


@cache
def _decoders_of(path: tuple[str, ...], fields: tuple[str, ...] | None, beside: tuple[str, ...]) -> tuple[Any, Any]:
    """Decoders of a page: one gives the text of each record and what stands beside them, one the values of records."""
    import msgspec

    make: Any = TypedDict
    record: Any = Any if fields is None else make("Record", dict.fromkeys(fields, Any), total=False)

    def level(path: tuple[str, ...], beside: tuple[str, ...], records: Any) -> Any:
        if not path:
            return records
        inner = tuple(rest for first, _, rest in (name.partition(".") for name in beside) if first == path[0] and rest)
        own = {name.partition(".")[0]: Any for name in beside}
        return make("Page", own | {path[0]: level(path[1:], inner, records)}, total=False)

    texts = level(path, beside, list[msgspec.Raw])
    return msgspec.json.Decoder(texts), msgspec.json.Decoder(level(path, (), list[record]))


def _cut_quickly(
    body: bytes, path: tuple[str, ...], fields: tuple[str, ...] | None, beside: tuple[str, ...]
) -> Page | None:
    """The same without values for other fields; None: `_Cutter` reads it, or says what is wrong."""
    import msgspec

    try:
        texts, values = _decoders_of(path, fields, beside)
        around = texts.decode(body)
        pieces, records = _value_at(around, path), _value_at(values.decode(body), path)
    except (msgspec.MsgspecError, KeyError, RecursionError):
        return None
    # A string has no raw line breaks, so those that are there separate values.
    own = [*map(bytes, pieces)] if _is_one_line(body) else [_on_one_line(bytes(piece)) for piece in pieces]
    return Page(records, own, around if path else {})


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _is_one_line(text: bytes) -> bool:
    return b"\n" not in text and b"\r" not in text


def _on_one_line(text: bytes) -> bytes:
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.records: list[Any] | None = None
        self.texts: list[bytes] = []

    def page(self, path: Sequence[str]) -> Page:
        fields: dict[str, Any] = {}
        end = self._descend(self._skip(0), tuple(path), fields)
        if self._skip(end) != len(self.text):
            raise json.JSONDecodeError("text after the end", self.text, end)
        if self.records is None:
            where = ".".join(path) or "the page"
            raise NoRecords(f"there is no field {where}" if path else "the page is no list")
        return Page(self.records, self.texts, fields)

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _descend(self, at: int, path: tuple[str, ...], fields: dict[str, Any]) -> int:
        if not path:
            return self._list(at)
        if self.text[at] != "{":
            raise NoRecords(f"there is an object missing around field {path[0]}")
        at = self._skip(at + 1)
        while self.text[at] != "}":
            key, at = _decode(self.text, at)
            at = self._expect(at, ":")
            if key == path[0]:
                inner: dict[str, Any] = {}
                at = self._descend(at, path[1:], inner)
                fields[key] = inner
            else:
                fields[key], at = _decode(self.text, at)
            at = self._skip(at)
            if self.text[at] == ",":
                at = self._skip(at + 1)
            elif self.text[at] != "}":
                raise json.JSONDecodeError("expected , or }", self.text, at)
        return at + 1

    def _list(self, at: int) -> int:
        text, records = self.text, list[Any]()
        if text[at] != "[":
            raise NoRecords("the records are no list")
        at = self._skip(at + 1)
        while text[at] != "]":
            record, end = _decode(text, at)
            records.append(record)
            self.texts.append(_on_one_line(text[at:end].encode()))
            at = self._skip(end)
            if text[at] == ",":
                at = self._skip(at + 1)
            elif text[at] != "]":
                raise json.JSONDecodeError("expected , or ]", text, at)
        self.records = records
        return at + 1

    def _expect(self, at: int, what: str) -> int:
        at = self._skip(at)
        if self.text[at] != what:
            raise json.JSONDecodeError(f"expected {what}", self.text, at)
        return self._skip(at + 1)
