"""The documentation as its tests see it: pages, fenced blocks, sections, tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGES = sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md"), TOP / "benchmarks" / "README.md"])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (?!---)(.*?) \|", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(TOP)}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """A page's fenced blocks, in order; those in some languages, or all."""
    text = page.read_text()
    found = [Block(page, text[: match.start()].count("\n") + 1, match[1], match[2]) for match in _FENCE.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one."""
    parts = re.split(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert heading in found, f"{page.name} has no section '{heading}'"
    return found[heading]


def first_cells(text: str) -> list[str]:
    """What stands in the first column of a section's tables, without their heads."""
    return _ROW.findall(re.sub(r"^\|.*\|\n(?=\|---)", "", text, flags=re.MULTILINE))


def anchor(heading: str) -> str:
    """How a code host names a heading within its page."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
