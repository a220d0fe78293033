"""`python -m penstock.cli.pages.reference FILE`: writes each verb's help into the command reference, docs/commands.md.

Each verb has a section. The text between the two markers is what `--help` prints; the text outside of them is written
by hand and stays. A new verb gets a section, and the section of a removed verb is deleted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

BEGIN = "<!-- From the command itself: script/docs --generate. -->"
END = "<!-- By hand from here on. -->"
TOP = "penstock"

_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_BETWEEN = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
_EXAMPLES = re.compile(r"\x08\nExamples:\n(.*?)(?:\n\n|\Z)", re.DOTALL)


def page(before: str, app: typer.Typer) -> str:
    """The updated page: hand-written parts unchanged, the rest from the app."""
    opening, *rest = _SECTION.split(before)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    parts = [opening.strip()]
    for words, command in verbs(app):
        notes = _BETWEEN.sub("", sections.pop(words, "")).strip()
        parts.append(f"## {words}\n\n{BEGIN}\n\n```\n{help_text(words, command)}\n```\n\n{END}\n\n{notes}".rstrip())
    parts += [f"## {name}\n\n{text.strip()}" for name, text in sections.items() if name.split()[0] != TOP]
    return "\n\n".join(parts) + "\n"


def verbs(app: typer.Typer) -> Iterator[tuple[str, Any]]:
    """The command, then every verb and group that is not hidden, with its full name."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                yield from below(f"{words} {name}", inner)

    return below(TOP, typer.main.get_command(app))


def help_text(words: str, command: Any) -> str:
    """What `--help` prints on a terminal of 100 columns."""
    context = typer.Context(command, info_name=words, terminal_width=100, help_option_names=["-h", "--help"])
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())


def examples(command: Any) -> list[str]:
    """The example commands in a verb's help; two spaces separate an example from a remark."""
    match = _EXAMPLES.search(command.help or "")
    return [re.split(r"\s{2,}", line.strip(), maxsplit=1)[0] for line in match[1].splitlines()] if match else []


def main() -> None:
    """Write the page if it has changed."""
    from penstock.cli import app

    path = Path(sys.argv[1])
    before = path.read_text(encoding="utf-8")
    after = page(before, app)
    if after != before:
        path.write_text(after, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
