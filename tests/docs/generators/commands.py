"""`python -m tests.docs.generators.commands FILE`: writes each verb's help into docs/commands.md.

Each verb has a section. The block below the marker is what `--help` prints, without the options that many verbs share:
these are listed once, in the first section. The text below the block is written by hand and stays. A new verb gets a
section, and the section of a removed verb is deleted.
"""

from __future__ import annotations

import copy
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

BEGIN = "<!-- generated -->"
TOP = "penstock"
#: an option with the same help in this many verbs is listed once
SHARED_BY_AT_LEAST = 4

_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_GENERATED = re.compile(re.escape(BEGIN) + r"\n\n```\n.*?\n```\n", re.DOTALL)
_EXAMPLES = re.compile(r"\x08\nExamples:\n(.*?)(?:\n\n|\Z)", re.DOTALL)


def page(before: str, app: typer.Typer) -> str:
    """The updated page: hand-written parts unchanged, the rest from the app."""
    opening, *rest = _SECTION.split(before)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    parts = [opening.strip()]
    known = dict(verbs(app))
    shared = shared_parameters(list(known.values()))
    for words, command in known.items():
        notes = _GENERATED.sub("", sections.pop(words, "")).strip()
        text = section_text(words, command, shared)
        parts.append(f"## {words}\n\n{BEGIN}\n\n```\n{text}\n```\n\n{notes}".rstrip())
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


def section_text(words: str, command: Any, shared: list[Any]) -> str:
    """The help of a verb, with only the names of its shared options; that of the command itself explains them."""
    usage = help_text(words, command).partition("\n")[0]
    texts = {_text(parameter) for parameter in shared}
    own = _without_usage([each for each in command.params if _text(each) not in texts], command)
    if words == TOP and shared:
        bare = copy.copy(command)
        bare.help, bare.commands = "", {}
        listed = _without_usage(shared, bare)
    else:
        options = [each for each in command.params if _text(each) in texts and each.param_type_name == "option"]
        listed = f"Shared options: {', '.join(max(each.opts, key=len) for each in options)}" if options else ""
    titled = listed.replace("Arguments:", "Shared arguments:").replace("Options:", "Shared options:")
    return f"{usage}\n\n{own}\n\n{titled}".rstrip()


def shared_parameters(commands: list[Any]) -> list[Any]:
    """Options and arguments with the same names and help in several verbs; the help option is one of them."""
    found = {_text(parameter): parameter for command in commands for parameter in command.params}
    count = Counter(_text(parameter) for command in commands for parameter in command.params)
    return [parameter for text, parameter in found.items() if count[text] >= SHARED_BY_AT_LEAST]


def _text(parameter: Any) -> tuple[Any, ...]:
    return (*parameter.opts, parameter.help)


def _without_usage(parameters: list[Any], command: Any) -> str:
    """The help of a command with other parameters, below its usage line."""
    other = copy.copy(command)
    other.params, other.add_help_option = parameters, False
    return help_text("", other).partition("\n")[2].strip("\n")


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
