"""Converts a YAML tree to plain values, expands variables, and records the origin of each value.

Values are those of JSON: no dates, no `yes` for true, no base-60 numbers. Mistakes are collected, not raised.
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

#: limit against nested aliases, which can expand a small file without end
MAX_VALUES = 20_000

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_CONSTANTS: dict[str, Any] = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.capitalize(), word.upper())
}
_KEY = "a key must be a string, not a list or a mapping; quote a value that starts with a bracket"
_YAML = "tag:yaml.org,2002:"
_STRING_TAGS = {"!", f"{_YAML}str"}
_TAGS = {None} | _STRING_TAGS | {f"{_YAML}{name}" for name in ("map", "seq", "int", "float", "bool", "null")}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a line of the file, or an override."""

    #: line in the file, or number of the override
    line: int
    #: the variables in the value; their values are never shown
    variables: tuple[str, ...] = ()
    #: the override, without its value; None if the value is from the file
    override: str | None = None
    #: a comment (` #`) follows the value directly
    cut: bool = False
    #: for a mapping that only an override's key implies, the rest of that key
    implied: str | None = None
    #: the value is an unquoted `null`, which may also be a choice of the field
    null: bool = False


@dataclass(slots=True)
class Document:
    """The values of a file, their origins and its mistakes."""

    data: Any = None
    places: dict[Path, Origin] = field(default_factory=dict)
    #: values that could not be read; further errors about them are suppressed
    broken: set[Path] = field(default_factory=set)
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, path: Path) -> Origin:
        """The origin of a value, or of the nearest value around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Origin(1))

    def variables(self, path: Path) -> tuple[str, ...]:
        return self.places[path].variables if path in self.places else ()

    def mistake(self, path: Path, text: str, *, at: Origin | None = None) -> None:
        place = at or self.place(path)
        self.mistakes.append(Mistake(place.line, path, text, place.override))


def resolve(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def build(root: Node, variables: Variables) -> Document:
    """Build the document of a tree."""
    document = Document()
    document.places[()] = Origin(root.line)
    document.data = _Builder(document, variables).value(root, ())
    return document


def value_of(node: Node, path: Path, place: Origin, document: Document, variables: Variables) -> Any:
    """The value of an override's tree, all of whose values have the override as origin."""
    document.places[path] = place
    return _Builder(document, variables, place).value(node, path)


class _Builder:
    def __init__(self, document: Document, variables: Variables, everywhere: Origin | None = None) -> None:
        self._document = document
        self._variables = variables
        #: the origin of all values if it is an override
        self._everywhere = everywhere
        self._left = MAX_VALUES

    def _place(self, node: Node) -> Origin:
        return self._everywhere or Origin(node.line)

    def value(self, node: Node, path: Path) -> Any:
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                self._document.mistake(path, f"the file has more than {MAX_VALUES} values", at=self._place(node))
            return self._nothing(path)
        if node.tag not in _TAGS:
            tag = visible(node.tag or "").replace(_YAML, "!!")
            self._document.mistake(path, f"tag {tag} is not supported; remove it", at=self._place(node))
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
            self._document.mistake(path, "not valid Unicode")
            return self._nothing(path)
        text = expanded.text
        # The value of a variable is a string until a field expects another type.
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
            # The mapping's own keys override merged ones; merged lines are those of the anchor.
            if key.text not in data:
                self._document.places[(*path, key.text)] = self._place(key)
                data[key.text] = self.value(value, (*path, key.text))
        return data

    def _merged(self, nodes: list[Node], path: Path) -> Iterator[tuple[Scalar, Node]]:
        for node in nodes:
            for mapping in node.items if isinstance(node, Sequence) else (node,):
                if not isinstance(mapping, Mapping):
                    self._document.mistake(path, "'<<' can merge only mappings", at=self._place(mapping))
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
    """Whether a scalar is a string whatever its characters."""
    return not node.plain if node.tag is None else node.tag in _STRING_TAGS


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
