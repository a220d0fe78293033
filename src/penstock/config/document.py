"""A tree of YAML to plain values, with variables filled in, and the place of each value.

Values are those of JSON: no dates, no `yes` for true, no numbers to the base 60. Mistakes are collected, not
raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.config.mistakes import Mistake, Path, visible
from penstock.config.syntax import Mapping, Node, Scalar, Sequence
from penstock.config.variables import Variables

#: aliases of aliases can make a small file endless
MOST_VALUES = 20_000

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, Any] = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.capitalize(), word.upper())
}
_KEY = "a key must be text, not a list or a mapping; a value that begins with a bracket is put in quotes"
_YAML = "tag:yaml.org,2002:"
_TEXT = {"!", f"{_YAML}str"}
_TAGS = {None} | _TEXT | {f"{_YAML}{name}" for name in ("map", "seq", "int", "float", "bool", "null")}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value came from."""

    #: in the file; of an override, which one it is
    line: int
    #: the environment variables in it: what they hold is never shown
    variables: tuple[str, ...] = ()
    #: the override it came from, as it may be shown; None: the file
    override: str | None = None
    #: the file has ` #` at once after it
    cut: bool = False
    #: of a mapping that only an override's key implies: the rest of that key as one name
    implied: str | None = None
    #: nothing, spelt out: a field may have a choice of that name
    null: bool = False


@dataclass(slots=True)
class Document:
    """Everything a file says."""

    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    #: values that could not be had; complaints about them would only repeat the mistake
    broken: set[Path] = field(default_factory=set)
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """The place of a value, or of the nearest thing around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1))

    def variables(self, path: Path) -> tuple[str, ...]:
        return self.places[path].variables if path in self.places else ()

    def mistake(self, path: Path, text: str, *, at: Place | None = None) -> None:
        place = at or self.place(path)
        self.mistakes.append(Mistake(place.line, path, text, place.override))


def resolve(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def build(root: Node, variables: Variables) -> Document:
    """The values of a tree."""
    document = Document()
    document.places[()] = Place(root.line)
    document.data = _Builder(document, variables).value(root, ())
    return document


def value_of(node: Node, path: Path, place: Place, document: Document, variables: Variables) -> Any:
    """The value of a tree that an override puts at a path; everything in it is at the override's place."""
    document.places[path] = place
    return _Builder(document, variables, place).value(node, path)


class _Builder:
    def __init__(self, document: Document, variables: Variables, everywhere: Place | None = None) -> None:
        self._document = document
        self._variables = variables
        #: the place of all values, where lines mean nothing
        self._everywhere = everywhere
        self._left = MOST_VALUES

    def _place(self, node: Node) -> Place:
        return self._everywhere or Place(node.line)

    def value(self, node: Node, path: Path) -> Any:
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                self._document.mistake(path, f"more than {MOST_VALUES} values in the file", at=self._place(node))
            return self._nothing(path)
        if node.tag not in _TAGS:
            tag = visible(node.tag or "").replace(_YAML, "!!")
            self._document.mistake(path, f"tag {tag} is not known here; remove it", at=self._place(node))
            return self._nothing(path)
        if isinstance(node, Scalar):
            return self._scalar(node, path)
        if isinstance(node, Sequence):
            return [self._item(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _nothing(self, path: Path) -> None:
        self._document.broken.add(path)

    def _scalar(self, node: Scalar, path: Path) -> Any:
        if node.cut:
            self._document.places[path] = replace(self._document.place(path), cut=True)
        expanded = self._variables.expand(node.text)
        if expanded.names:
            self._document.places[path] = replace(self._document.place(path), variables=expanded.names)
        for problem in expanded.problems:
            self._document.mistake(path, problem)
        if expanded.problems:
            return self._nothing(path)
        if not _encodes(expanded.text):
            self._document.mistake(path, "not valid Unicode text")
            return self._nothing(path)
        text = expanded.text
        # What a variable holds has no type of its own: it is text until a field asks for something else.
        if "${" in node.text or _is_text(node):
            return text
        if text.lower() == "null":
            self._document.places[path] = replace(self._document.place(path), null=True)
        return resolve(text)

    def _item(self, node: Node, path: Path) -> Any:
        self._document.places[path] = self._place(node)
        return self.value(node, path)

    def _mapping(self, node: Mapping, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[Node] = []
        for key, value in node.pairs:
            if not isinstance(key, Scalar):
                self._document.mistake(path, _KEY, at=self._place(key))
                continue
            if key.text == "<<" and key.plain:
                merged.append(value)
                continue
            if key.text in lines:
                text = f"duplicate key; the first is on line {lines[key.text]}"
                self._document.mistake((*path, key.text), text, at=self._place(key))
                continue
            lines[key.text] = key.line
            self._document.places[(*path, key.text)] = self._place(key)
            data[key.text] = self.value(value, (*path, key.text))
        for key, value in self._merged(merged, path):
            # What the mapping says itself goes before what it takes over; lines are those of the anchor.
            if key.text not in data:
                self._document.places[(*path, key.text)] = self._place(key)
                data[key.text] = self.value(value, (*path, key.text))
        return data

    def _merged(self, nodes: list[Node], path: Path) -> Iterator[tuple[Scalar, Node]]:
        for node in nodes:
            for mapping in node.items if isinstance(node, Sequence) else (node,):
                if not isinstance(mapping, Mapping):
                    self._document.mistake(path, "'<<' takes over mappings only", at=self._place(mapping))
                    continue
                self._left -= 1
                if self._left < 0:
                    return
                yield from self._pairs(mapping, path)

    def _pairs(self, mapping: Mapping, path: Path) -> Iterator[tuple[Scalar, Node]]:
        deeper: list[Node] = []
        for key, value in mapping.pairs:
            if isinstance(key, Scalar) and key.text == "<<" and key.plain:
                deeper.append(value)
            elif isinstance(key, Scalar):
                yield key, value
        yield from self._merged(deeper, path)


def _is_text(node: Scalar) -> bool:
    """Whether a scalar is text whatever it spells."""
    return not node.plain if node.tag is None else node.tag in _TEXT


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
