"""The report of `check` as text: short where all is well; each SQL statement once, on a line of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.cli.shared.inspection import describe_holder
from penstock.cli.shared.render import count

#: signs on terminals with Unicode
SIGNS = {"guarantee": "✓", "gap": "!", "broken": "✗", "advice": "·"}
#: signs on other terminals
ASCII_SIGNS = {"guarantee": "ok", "gap": "!", "broken": "x", "advice": "-"}
#: a remark about at least this many streams is printed once for all of them
SHARED_REMARK_STREAMS = 2
#: a whole statement in capitals, up to its semicolon; a function body may contain semicolons too
_STATEMENT = re.compile(r"\b(?:CREATE|ALTER|GRANT|DROP|SELECT) (?:\$\$.*?\$\$|[^;$`…])*;", re.DOTALL)

Remark = tuple[str, str]


def signs() -> Mapping[str, str]:
    try:
        "".join(SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII_SIGNS
    return SIGNS


class CheckLines:
    """The report of one pipeline as lines."""

    def __init__(self, document: Mapping[str, Any], *, verbose: bool) -> None:
        self.document = document
        self.verbose = verbose
        self.signs = signs()
        #: statements that are already printed
        self._printed: set[str] = set()

    def lines(self) -> list[str]:
        document = self.document
        sides = f"{document['source']} to {document['sink']}"
        lines = [f"{document['pipeline']}: {sides}; {describe_holder(document['held_by'])}"]
        if document["problem"]:
            lines += self._problem(document["problem"], "")
            if not document["streams"]:
                return lines
        shared = self._shared()
        for stream in document["streams"]:
            lines += [f"  {line}" for line in self._stream(stream, shared)]
        for names, remarks in _grouped(shared).items():
            lines.append(f"  For {', '.join(names)}:")
            for remark in remarks:
                lines += [f"      {line}" for line in self._remark(remark)]
        return [*lines, self._summary()]

    def _summary(self) -> str:
        streams = self.document["streams"]
        refused = sum(stream["problem"] is not None for stream in streams)
        synced = sum(stream["skipped"] is None for stream in streams) - refused
        summary = f"{count(synced, 'stream')} can be synced" + (f", {refused} cannot" if refused else "")
        hidden = {remark for stream in streams for remark in _remarks(stream) if not self._shown(remark)}
        guarantees, advice = (sum(kind == wanted for kind, _ in hidden) for wanted in ("guarantee", "advice"))
        more = [count(guarantees, "guarantee")] if guarantees else []
        more += [f"{count(advice, 'piece')} of advice"] if advice else []
        hint = f"; --verbose shows {' and '.join(more)}" if more else ""
        return f"{self.document['pipeline']}: {summary}{hint}"

    # ------------------------------------------------------------ remarks

    def _shown(self, remark: Remark) -> bool:
        """Gaps are always shown; guarantees and advice only with --verbose."""
        return self.verbose or remark[0] == "gap"

    def _shared(self) -> dict[Remark, list[str]]:
        """Remarks about several streams, with the streams' names; printed once, at the end."""
        found: dict[Remark, list[str]] = {}
        for stream in self.document["streams"]:
            for remark in filter(self._shown, _remarks(stream)):
                found.setdefault(remark, []).append(stream["stream"])
        return {remark: names for remark, names in found.items() if len(names) >= SHARED_REMARK_STREAMS}

    def _remark(self, remark: Remark) -> Iterator[str]:
        kind, text = remark
        words, statements = split_statements(text)
        yield f"{self.signs[kind]} {words}{self._as_above(statements)}"
        yield from (f"    {statement}" for statement in self._new(statements))

    # ------------------------------------------------------------ streams

    def _stream(self, stream: Mapping[str, Any], shared: Mapping[Remark, list[str]]) -> list[str]:
        name = stream["stream"]
        if stream["skipped"] is not None:
            return [f"{self.signs['advice']} {name}: skipped: {stream['skipped']}"]
        if stream["problem"]:
            return [line for problem in stream["problems"] for line in self._problem(problem, f"{name}: ")]
        begun = f"; {stream['at']}" if stream["slice"] else "; not started"
        columns = count(len(stream["columns"]), "column")
        lines = [f"{self.signs['guarantee']} {name}: {stream['how']}, {columns}{begun}"]
        if stream["open"]:
            lines.append(f"    slice {stream['open']['slice']} is open; the next run finishes it first")
        lines += [f"    {self.signs['gap']} {line}" for line in stream["drift"]]
        for remark in filter(self._shown, _remarks(stream)):
            if remark not in shared:
                lines += [f"    {line}" for line in self._remark(remark)]
        return lines

    def _problem(self, problem: Mapping[str, Any], where: str) -> list[str]:
        words, statements = split_statements(problem["next_step"])
        lines = [f"{self.signs['broken']} {where}{problem['what']}", f"    Next: {words}{self._as_above(statements)}"]
        return [*lines, *(f"        {statement}" for statement in self._new(statements))]

    # ------------------------------------------------------------ statements

    def _as_above(self, statements: Sequence[str]) -> str:
        return " as above" if statements and self._printed.issuperset(statements) else ""

    def _new(self, statements: Iterable[str]) -> list[str]:
        """The statements that are not printed yet; marks them as printed."""
        found = [statement for statement in dict.fromkeys(statements) if statement not in self._printed]
        self._printed.update(found)
        return found


def _remarks(stream: Mapping[str, Any]) -> list[Remark]:
    return [(each["kind"], each["text"]) for each in stream["remarks"]]


def _grouped(shared: Mapping[Remark, list[str]]) -> dict[tuple[str, ...], list[Remark]]:
    """Group remarks by the streams that they are about."""
    found: dict[tuple[str, ...], list[Remark]] = {}
    for remark, names in shared.items():
        found.setdefault(tuple(names), []).append(remark)
    return found


def split_statements(text: str) -> tuple[str, list[str]]:
    """Return a message without its SQL statements, and the statements in order."""
    found = _STATEMENT.findall(text)
    if not found:
        return text, []
    before, _, after = _STATEMENT.sub("\0", text).partition("\0")
    before, after = before.rstrip(" :") or "run this", after.replace("\0", "").strip(" ,;.")
    return f"{before}, {after}:" if after else f"{before}:", found
