"""Cuts a page into its records: each as a value and as its own text, so that nothing is lost by writing it again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.links.http.failures import Malformed

_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


class NoRecords(ValueError):
    """A page that has no list of records where it should be."""


@dataclass(frozen=True, slots=True)
class Page:
    """The records of a page, in its order."""

    records: list[Any]
    #: each record's own text, on one line
    texts: list[str]
    #: everything in the page but the records
    fields: dict[str, Any]


def cut(body: bytes, path: Sequence[str]) -> Page:
    """Cut a page whose records lie at `path`; Malformed if it is no JSON, NoRecords if they are not there."""
    try:
        text = body.decode()
        return _Cutter(text).page(path)
    except (UnicodeDecodeError, json.JSONDecodeError, IndexError) as error:
        raise Malformed(str(error)[:100]) from None


def look_up(value: Any, path: str) -> Any:
    """The value at a path with dots; None if there is none."""
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


class _Cutter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.records: list[Any] | None = None
        self.texts: list[str] = []

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
            own = text[at:end]
            # A string has no raw line breaks, so those that are there separate values.
            self.texts.append(own.replace("\n", " ").replace("\r", " ") if "\n" in own or "\r" in own else own)
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
