"""Saved messages, as `run --json` wrote them, parted into the executions they came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.core.messages import Catalog, Eof, Message, MessageRefused, decode


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that is no message."""

    line: int
    what: str


@dataclass(slots=True)
class Execution:
    """One pipeline's messages from its catalog to its last one, if that came."""

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
    """A file of messages."""

    executions: list[Execution] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read(lines: Iterable[str]) -> SavedMessages:
    """Every line that is a message, and a problem for every other one."""
    book = SavedMessages()
    ended = True
    for number, line, last in _numbered(lines):
        try:
            message = decode(line)
        except (MessageRefused, json.JSONDecodeError, RecursionError) as error:
            cut = last and isinstance(error, json.JSONDecodeError) and line.startswith("{")
            book.problems.append(Problem(number, _cut() if cut else f"not a message: {line.strip()[:60]}"))
            continue
        # A catalog without the last message of the execution before: that one was killed.
        if ended or (isinstance(message, Catalog) and book.executions[-1].catalog):
            book.executions.append(Execution())
        book.executions[-1].messages.append(message)
        ended = isinstance(message, Eof)
    return book


def _cut() -> str:
    return "cut off: its writer was killed, or is still writing"


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Lines that are not empty, with their numbers, and whether each is the last."""
    held: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if held:
            yield (*held, False)
        held = number, line
    if held:
        yield (*held, True)
