"""Overrides from the command line, `--set KEY=VALUE`, merged onto what the file says before it is validated.

A key is a way through the file, with dots: `pipelines.shop.source.schema`, or from within each pipeline:
`source.schema`. A value is read like an unquoted scalar of YAML, or like YAML if it begins with a bracket or a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.config import syntax
from penstock.config.document import Document, Place, value_of
from penstock.config.mistakes import SYNONYMS, UNKNOWN, Path, dotted, visible
from penstock.config.models import FileKeys, PipelineKeys
from penstock.config.variables import Variables
from penstock.core.names import suggest

#: a step of a key: plain, or in quotes if it has dots or other characters
_STEP = re.compile(r"""(?P<plain>[\w-]+)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'""")
_EXAMPLE = "write KEY=VALUE, for example --set source.schema=sales"
_TOP = frozenset(FileKeys.model_fields)
_PIPELINE = frozenset(PipelineKeys.model_fields)


@dataclass(frozen=True, slots=True)
class _Override:
    """One `--set`."""

    #: as it was written
    path: tuple[str, ...]
    value: syntax.Node
    place: Place


def override(document: Document, sets: Sequence[str], variables: Variables) -> None:
    """Merge overrides, in their order; mistakes in them join those of the file."""
    for number, text in enumerate(sets, start=1):
        read = _read(text, number, document)
        if read is None or not isinstance(document.data, dict):
            continue  # what is wrong with the file is said by whoever checks it
        for path in _ways(read, document):
            _put(read, path, document, variables)


def _read(text: str, number: int, document: Document) -> _Override | None:
    """One override; None: it is malformed, and the document knows."""
    path, rest = _steps(text)
    # Only the key is shown: the value may be a password, and so may be what follows a key that ends too early.
    place = Place(number, override=f"--set {_shown(path, rest, text)}")
    if not path or not rest.startswith("="):
        document.mistake((), f"expected a key and a value; {_EXAMPLE}", at=place)
        return None
    if len(path) > syntax.DEEPEST:
        document.mistake((), f"nested more than {syntax.DEEPEST} levels deep", at=place)
        return None
    try:
        return _Override(path, _value(rest[1:]), place)
    except syntax.Refused as refused:
        document.mistake((), f"{refused.text}; a value in quotes is taken as it stands", at=place)
        return None


def _steps(text: str) -> tuple[tuple[str, ...], str]:
    """The steps of a key, and what comes after it."""
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
        assert node is not None  # it begins with something
        return node
    return syntax.Scalar(1, text.strip(), plain=True, tag=None)


# ---------------------------------------------------------------- where it goes


def _ways(read: _Override, document: Document) -> Iterable[Path]:
    """The places in the file that an override is about."""
    first = read.path[0]
    if first not in _TOP | _PIPELINE:
        known = suggest(first, _TOP | _PIPELINE, "keys of a file and of a pipeline", synonyms=SYNONYMS)
        document.mistake((first,), f"{UNKNOWN}; {known}", at=read.place)
        return []
    pipelines = document.data.get("pipelines")
    if first in _TOP:
        ways: list[Path] = [read.path]
    else:
        # Without a pipeline there is nothing to override, and the file is told so.
        names = list(pipelines) if isinstance(pipelines, dict) else []
        ways = [("pipelines", name, *read.path) for name in names]
    return _known(ways, read, document)


def _known(ways: list[Path], read: _Override, document: Document) -> list[Path]:
    """Those whose pipeline and stream there are: a name spelt wrong must not become a new one."""
    for depth, what in ((2, "pipeline"), (4, "stream")):
        # What is given as a whole may well be new.
        inside = [way for way in ways if _names(way, depth) and len(way) > depth]
        there = {way: _at(document.data, way[: depth - 1]) for way in inside}
        missing = [way for way in inside if not isinstance(there[way], dict) or way[depth - 1] not in there[way]]
        if missing and len(missing) == len(ways):
            name, known = (
                str(missing[0][depth - 1]),
                {n for names in there.values() if isinstance(names, dict) for n in names},
            )
            whole = dotted(missing[0][:depth])
            text = f"the file has no {what} '{visible(name)}'; {suggest(name, known, f'{what}s')}"
            document.mistake(missing[0], f"{text} To add one: --set {whole}={{…}}", at=read.place)
        ways = [way for way in ways if way not in missing]
    return ways


def _names(way: Path, depth: int) -> bool:
    return way[0] == "pipelines" and (depth == 2 or (len(way) > 3 and way[2] == "streams"))


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


# ---------------------------------------------------------------- putting it there


def _put(read: _Override, path: Path, document: Document, variables: Variables) -> None:
    inside = document.data
    for length, step in enumerate(path[:-1], start=1):
        here = path[:length]
        if inside.get(step) is None:
            # A mapping that is not there yet, or is empty.
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
    """Whatever the file said there, and what was wrong with it, counts no more."""

    def below(other: Path) -> bool:
        return other[: len(path)] == path

    gone = {other for other in document.broken if below(other)}
    document.mistakes = [mistake for mistake in document.mistakes if mistake.path not in gone]
    document.broken -= gone
    document.places = {other: place for other, place in document.places.items() if not below(other)}
