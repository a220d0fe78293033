"""Merges overrides from the command line, `--set KEY=VALUE`, into the file before it is validated.

A key is a dotted path in the file, such as `pipelines.shop.source.schema`, or a path in every pipeline, such as
`source.schema`. A value is an unquoted YAML scalar, or YAML if it starts with a bracket or a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.config import syntax
from penstock.config.document import Document, Origin, value_of
from penstock.config.mistakes import SYNONYMS, UNKNOWN, Path, dotted, visible
from penstock.config.models import FileKeys, PipelineKeys
from penstock.config.variables import Variables
from penstock.core.names import suggest

#: a step of a key: unquoted, or quoted if it contains dots or other characters
_STEP = re.compile(r"""(?P<plain>[\w-]+)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'""")
_EXAMPLE = "write KEY=VALUE, for example --set source.schema=sales"
_TOP = frozenset(FileKeys.model_fields)
_PIPELINE = frozenset(PipelineKeys.model_fields)


@dataclass(frozen=True, slots=True)
class _Override:
    """One `--set`."""

    #: the path as written
    path: tuple[str, ...]
    value: syntax.Node
    place: Origin


def override(document: Document, sets: Sequence[str], variables: Variables) -> None:
    """Merge overrides in order; their mistakes are added to those of the file."""
    for number, text in enumerate(sets, start=1):
        read = _read(text, number, document)
        if read is None or not isinstance(document.data, dict):
            continue  # the validator reports what is wrong with the file
        for path in _target_paths(read, document):
            _put(read, path, document, variables)


def _read(text: str, number: int, document: Document) -> _Override | None:
    """Parse one override; None if it is malformed, which is recorded as a mistake."""
    path, rest = _steps(text)
    # Only the key is shown: the value, or whatever follows an incomplete key, may be a password.
    place = Origin(number, override=f"--set {_shown(path, rest, text)}")
    if not path or not rest.startswith("="):
        document.mistake((), f"expected a key and a value; {_EXAMPLE}", at=place)
        return None
    if len(path) > syntax.MAX_NESTING:
        document.mistake((), f"nested more than {syntax.MAX_NESTING} levels deep", at=place)
        return None
    try:
        return _Override(path, _value(rest[1:]), place)
    except syntax.Refused as refused:
        document.mistake((), f"{refused.text}; a quoted value is used as it is", at=place)
        return None


def _steps(text: str) -> tuple[tuple[str, ...], str]:
    """The steps of a key, and the rest of the text."""
    steps: list[str] = []
    at = 0
    while step := _STEP.match(text, at):
        steps.append(next(group for group in step.groups() if group is not None))
        at = step.end()
        if not text.startswith(".", at):
            return tuple(steps), text[at:]
        at += 1
    return (), text[at:]


def _shown(path: tuple[str, ...], rest: str, text: str) -> str:
    if not path:
        return visible(re.match(r"[\w.-]*", text)[0]) + "…"  # type: ignore[index]  # it matches even nothing
    return f"{dotted(path)}=…" if rest.startswith("=") else dotted(path) + ("…" if rest else "")


def _value(text: str) -> syntax.Node:
    if text.lstrip().startswith(("[", "{", '"', "'")):
        node = syntax.tree(text)
        assert node is not None  # it is not empty
        return node
    return syntax.Scalar(1, text.strip(), plain=True, tag=None)


# ---------------------------------------------------------------- the paths of an override


def _target_paths(read: _Override, document: Document) -> Iterable[Path]:
    """The paths in the file that an override sets."""
    first = read.path[0]
    if first not in _TOP | _PIPELINE:
        known = suggest(first, _TOP | _PIPELINE, "keys of a file and of a pipeline", synonyms=SYNONYMS)
        document.mistake((first,), f"{UNKNOWN}; {known}", at=read.place)
        return []
    pipelines = document.data.get("pipelines")
    if first in _TOP:
        paths: list[Path] = [read.path]
    else:
        # A file without pipelines is reported elsewhere.
        names = list(pipelines) if isinstance(pipelines, dict) else []
        paths = [("pipelines", name, *read.path) for name in names]
    return _existing_paths(paths, read, document)


def _existing_paths(paths: list[Path], read: _Override, document: Document) -> list[Path]:
    """The paths whose pipeline and stream exist: a misspelled name must not create a new one."""
    for depth, what in ((2, "pipeline"), (4, "stream")):
        # A pipeline or stream that is set as a whole may be new.
        inside = [path for path in paths if _names(path, depth) and len(path) > depth]
        there = {path: _at(document.data, path[: depth - 1]) for path in inside}
        missing = [path for path in inside if not isinstance(there[path], dict) or path[depth - 1] not in there[path]]
        if missing and len(missing) == len(paths):
            name, known = (
                str(missing[0][depth - 1]),
                {n for names in there.values() if isinstance(names, dict) for n in names},
            )
            whole = dotted(missing[0][:depth])
            text = f"the file has no {what} '{visible(name)}'; {suggest(name, known, f'{what}s')}"
            document.mistake(missing[0], f"{text} To add one: --set {whole}={{…}}", at=read.place)
        paths = [path for path in paths if path not in missing]
    return paths


def _names(path: Path, depth: int) -> bool:
    return path[0] == "pipelines" and (depth == 2 or (len(path) > 3 and path[2] == "streams"))


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


# ---------------------------------------------------------------- setting a value


def _put(read: _Override, path: Path, document: Document, variables: Variables) -> None:
    inside = document.data
    for length, step in enumerate(path[:-1], start=1):
        here = path[:length]
        if inside.get(step) is None:
            # The mapping is missing or empty.
            inside[step] = {}
            _forget(document, here)
            rest = ".".join(map(str, path[length - 1 :]))
            document.places[here] = replace(read.place, implied=rest)
        inside = inside[step]
        if not isinstance(inside, dict):
            what = "a list, which can only be set as a whole" if isinstance(inside, list) else "not a mapping"
            document.mistake(path, f"{dotted(here)} is {what}", at=read.place)
            return
    _forget(document, path)
    inside[path[-1]] = value_of(read.value, path, read.place, document, variables)


def _forget(document: Document, path: Path) -> None:
    """Remove the file's value at a path, with its mistakes."""

    def below(other: Path) -> bool:
        return other[: len(path)] == path

    gone = {other for other in document.broken if below(other)}
    document.mistakes = [mistake for mistake in document.mistakes if mistake.path not in gone]
    document.broken -= gone
    document.places = {other: place for other, place in document.places.items() if not below(other)}
