"""YAML text to a tree in which every key and value knows its line.

Read from the parser's events, not composed by PyYAML: its composer recurses in C, so that a file of brackets
ends the process, and it cannot tell `!!str 5` from `5`. What the values mean is left to `document`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml

from penstock.config.mistakes import Mistake, Path, config_error
from penstock.core.names import nearest
from penstock.errors import ConfigError

#: a file beyond this is not a pipeline file, whatever its name
MAX_FILE_BYTES = 1024 * 1024
MAX_NESTING = 20


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    text: str
    #: written without quotes
    plain: bool
    tag: str | None
    #: ` #` follows at once: perhaps it was meant as a part of the value
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    line: int
    items: tuple[Node, ...]
    tag: str | None


@dataclass(frozen=True, slots=True)
class Mapping:
    line: int
    pairs: tuple[tuple[Node, Node], ...]
    tag: str | None


Node = Scalar | Sequence | Mapping


def read(file: FilePath) -> str:
    """The file's text."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _unreadable(f"{file}: no such file{_other_name(file)}") from None
    except IsADirectoryError:
        raise _unreadable(f"{file}: is a directory, not a pipeline file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(f"{file}: cannot be read: {reason}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _unreadable(f"{file}: is larger than 1 MiB, too large for a pipeline file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise config_error(str(file), [Mistake(line, (), "not UTF-8 text")]) from None


def parse(text: str, file: str) -> Node | None:
    """Parse a file's text; None if it is empty."""
    try:
        return tree(text)
    except Refused as refused:
        raise config_error(file, [Mistake(refused.line, refused.path, refused.text)]) from None


def tree(text: str) -> Node | None:
    """Parse a text with one YAML document; None if it is empty."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Tree(yaml.parse(text, Loader=loader), text.split("\n")).document()
    except yaml.MarkedYAMLError as error:
        from penstock.config.yaml_errors import enclosing_keys, explain_error  # imported only for a mistake

        line, words = explain_error(error, text)
        raise Refused(line, words, enclosing_keys(text.split("\n"), line)) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise Refused(line, f"not valid YAML: {error.reason}") from None


def _unreadable(what: str) -> ConfigError:
    return ConfigError(what, safe="Nothing was read or written.", next_step="pass the path of a pipeline file (YAML)")


def _other_name(file: FilePath) -> str:
    try:
        beside = [other.name for other in file.parent.iterdir() if other.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    near = nearest(file.name, beside)
    return f"; did you mean '{file.parent / near}'?" if near else ""


class Refused(Exception):
    """Invalid YAML."""

    def __init__(self, line: int, text: str, path: Path = ()) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        #: the enclosing keys, as far as known
        self.path = path


class _Tree:
    """Turns parser events into nodes."""

    def __init__(self, events: Iterator[Any], lines: list[str]) -> None:
        self._events = events
        self._lines = lines
        self._anchors: dict[str, Node] = {}

    def document(self) -> Node | None:
        node: Node | None = None
        for event in self._events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if node is not None:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise Refused(line, "a second document ('---'); a pipeline file must have only one")
            node = self._node(next(self._events), depth=0)
        return node

    def _node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                from penstock.config.yaml_errors import enclosing_keys

                missing = f"alias *{event.anchor} has no anchor &{event.anchor} before it"
                raise Refused(
                    line, f"{missing}; put a string that starts with * in quotes", enclosing_keys(self._lines, line)
                )
            return self._anchors[event.anchor]
        if depth > MAX_NESTING:
            raise Refused(line, f"nested more than {MAX_NESTING} levels deep")
        node = self._fresh(event, line, depth)
        if event.anchor is not None:
            # Added last: an alias inside its own anchor would never end.
            self._anchors[event.anchor] = node
        return node

    def _fresh(self, event: Any, line: int, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(line, event.value, not event.style, event.tag, self._is_cut(event.end_mark))
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(line, tuple(self._until(yaml.SequenceEndEvent, depth)), event.tag)
        nodes = self._until(yaml.MappingEndEvent, depth)
        # zip over one iterator twice: keys and values alternate.
        return Mapping(line, tuple(zip(nodes, nodes, strict=True)), event.tag)

    def _until(self, end: type[Any], depth: int) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield self._node(event, depth + 1)

    def _is_cut(self, end: Any) -> bool:
        line = self._lines[end.line] if end.line < len(self._lines) else ""
        return re.match(r"\s+#\S", line[end.column :]) is not None
