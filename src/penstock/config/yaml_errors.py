"""Explains errors of the YAML parser: the line with the mistake, and what to write instead.

The parser detects most mistakes late, on the next line or at the end of the file. Messages do not repeat the file's
content, which may contain passwords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from penstock.config.mistakes import Path

_KEY = re.compile(r"\s*(- +)*[^\s#][^#]*?:(\s|$)")
_OWN = re.compile(r"""[ \t]*([\w-]+|"[\w. -]+"|'[\w. -]+') *:(?:\s|$)""")
#: a key whose value is on the following lines
_PARENT = re.compile(_OWN.pattern + r"\s*([&!#].*)?$")
_QUOTES = "put the value in quotes"


@dataclass(frozen=True, slots=True)
class _ParserError:
    """An error of the parser. Lines and columns are counted from 0."""

    lines: list[str]
    #: what the parser was reading, and its start
    context: str
    begun: tuple[int, int]
    #: what the parser met, and where
    problem: str
    met: tuple[int, int]

    def text(self, line: int) -> str:
        return self.lines[line] if 0 <= line < len(self.lines) else ""

    @property
    def character(self) -> str:
        line, column = self.met
        return self.text(line)[column : column + 1]

    @property
    def before(self) -> int:
        """The last non-empty line before the error."""
        line = max(0, self.met[0] - 1)
        while line > 0 and not self.text(line).split("#")[0].strip():
            line -= 1
        return line


def explain_error(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """The line, counted from 1, and the message."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, f"not valid YAML: {error.problem or error.context}"
    begun = error.context_mark or mark
    trouble = _ParserError(
        text.split("\n"),
        error.context or "",
        (begun.line, begun.column),
        error.problem or "",
        (mark.line, mark.column),
    )
    for explain in (_space, _token, _quote, _bracket, _colon, _second_colon, _indentation, _escape):
        explained = explain(trouble)
        if explained is not None:
            return explained[0] + 1, explained[1]
    words = ", ".join(part for part in (error.context, error.problem) if part)
    return mark.line + 1, f"not valid YAML at column {mark.column + 1}: {words}"


def enclosing_keys(lines: list[str], line: int) -> Path:
    """The keys that enclose a line, counted from 1, according to indentation."""
    *above, here = lines[:line]
    own = _OWN.match(here)
    path = [own[1].strip("\"'")] if own else []
    deeper = _indent(here)
    if "\t" in here[:deeper]:
        # The width of a tab is unknown: treat the line as a sibling of the line above, or as its child.
        before = next((written for written in reversed(above) if written.strip()), "")
        deeper = _indent(before) + bool(_PARENT.match(before))
    for written in reversed(above):
        key = _PARENT.match(written)
        if key and _indent(written) < deeper:
            path.insert(0, key[1].strip("\"'"))
            deeper = _indent(written)
    return tuple(path)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _space(trouble: _ParserError) -> tuple[int, str] | None:
    for line in (trouble.met[0], trouble.before):
        space = re.match(r"[ \t]*([\u00a0\u2000-\u200b\u202f\u3000])", trouble.text(line))
        if space:
            return line, f"indented with the character U+{ord(space[1]):04X}, which only looks like a space; use spaces"
    return None


def _token(trouble: _ParserError) -> tuple[int, str] | None:
    if "cannot start any token" not in trouble.problem:
        return None
    line, column = trouble.met
    if trouble.character == "\t":
        where = "indented with a tab" if not trouble.text(line)[:column].strip() else "a tab before a value"
        return line, f"{where}; YAML requires spaces"
    return line, f"a value cannot start with '{trouble.character}'; {_QUOTES}"


def _quote(trouble: _ParserError) -> tuple[int, str] | None:
    if "quoted scalar" not in trouble.context or "unexpected" not in trouble.problem:
        return None
    line, column = trouble.begun
    return line, f"the quote at column {column + 1} is never closed"


def _bracket(trouble: _ParserError) -> tuple[int, str] | None:
    if "flow" not in trouble.context:
        return None
    line, column = trouble.met
    if trouble.text(line)[column - 1 : column + 1] == "${":
        return line, 'quote a variable between brackets: "${NAME}"'
    begun, at = trouble.begun
    opened = trouble.text(begun)[at : at + 1]
    closed = "}" if opened == "{" else "]"
    if line != begun:
        return begun, f"the '{opened}' at column {at + 1} is never closed: '{closed}' is missing"
    return line, f"expected ',' or '{closed}' before column {column + 1}; quote strings that contain brackets or commas"


def _colon(trouble: _ParserError) -> tuple[int, str] | None:
    if "could not find expected ':'" not in trouble.problem:
        return None
    line = trouble.begun[0]
    if re.match(r"\s*(- +)*[\w.-]+:\S", trouble.text(line)):
        return line, "a space is missing after ':'; write 'key: value'"
    return line, "':' is missing; write 'key: value'"


def _second_colon(trouble: _ParserError) -> tuple[int, str] | None:
    if "mapping values are not allowed" not in trouble.problem:
        return None
    line, column = trouble.met
    if _KEY.match(trouble.text(line)[:column]):
        return line, f"': ' at column {column + 1} is inside a value; {_QUOTES}"
    if column > 1000:
        return line, "a key of more than 1000 characters"
    before = trouble.text(trouble.before)
    if _KEY.match(before):
        return line, "indented further than the line above, which already has a value"
    if re.match(r"\s*(- +)*[\w.-]+:\S", before):
        return trouble.before, "a space is missing after ':'; write 'key: value'"
    return trouble.before, "':' is missing at the end of the line; write 'key:'"


def _indentation(trouble: _ParserError) -> tuple[int, str] | None:
    if "did not find expected" not in trouble.problem or "block" not in trouble.context:
        return None
    line, column = trouble.met
    if trouble.text(line)[:column].strip():
        return line, f"text after the end of a value at column {column + 1}; double a quote inside quotes"
    above = _indent(trouble.text(trouble.before))
    return (line, f"indented by {column}, but the line above by {above}") if above != column else None


def _escape(trouble: _ParserError) -> tuple[int, str] | None:
    if "escape" not in trouble.problem:
        return None
    return trouble.met[0], "invalid backslash escape in double quotes; use single quotes"
