"""Reads messages saved by `run --json`, and separates them by run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.core.messages import Catalog, Eof, Message, MessageRefused, decode

TRUNCATED = "truncated: the run was killed or is still writing"


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that is not a message."""

    line: int
    what: str


@dataclass(slots=True)
class Execution:
    """The messages of one run of a pipeline, from its catalog to its `eof` if there is one."""

    messages: list[Message] = field(default_factory=list)

    @property
    def catalog(self) -> Catalog | None:
        return next((message for message in self.messages if isinstance(message, Catalog)), None)

    @property
    def eof(self) -> Eof | None:
        return next((message for message in self.messages if isinstance(message, Eof)), None)

    @property
    def pipeline(self) -> str:
        if self.catalog:
            return self.catalog.pipeline
        # A run that could not connect has no catalog.
        return (self.eof and self.eof.request_progress.get("pipeline")) or "run"


@dataclass(slots=True)
class SavedMessages:
    """The runs in a file of messages, and its invalid lines."""

    executions: list[Execution] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read(lines: Iterable[str]) -> SavedMessages:
    """Read messages; every other line is a problem."""
    book = SavedMessages()
    ended = True
    for number, line, last in _numbered(lines):
        try:
            message = decode(line)
        except (MessageRefused, json.JSONDecodeError, RecursionError) as error:
            truncated = last and isinstance(error, json.JSONDecodeError) and line.startswith("{")
            book.problems.append(Problem(number, TRUNCATED if truncated else f"not a message: {line.strip()[:60]}"))
            continue
        # A catalog before the `eof` of the previous run: that run was killed.
        if ended or (isinstance(message, Catalog) and book.executions[-1].catalog):
            book.executions.append(Execution())
        book.executions[-1].messages.append(message)
        ended = isinstance(message, Eof)
    return book


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Non-empty lines with their numbers, and whether each is the last one."""
    previous: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if previous:
            yield (*previous, False)
        previous = number, line
    if previous:
        yield (*previous, True)
