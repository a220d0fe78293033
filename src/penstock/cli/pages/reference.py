"""`python -m penstock.cli.pages.reference FILE`: generates the command reference, docs/commands.md.

Each verb has a section. The text between the two markers is generated from the verb's help; the text outside of them is
written by hand and stays. A new verb gets a section, and the section of a removed verb is deleted.
"""

from __future__ import annotations

import enum
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

BEGIN = "<!-- From the command itself: script/docs --generate. -->"
END = "<!-- By hand from here on. -->"
TOP = "penstock"
EXAMPLES = "Examples:"

#: separates an example from the remark after it
_REMARK = re.compile(r"\s{2,}(?:# )?")
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_BETWEEN = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)


def page(before: str, app: typer.Typer) -> str:
    """The updated page: hand-written parts unchanged, the rest generated from the app."""
    opening, *rest = _SECTION.split(before)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    by_hand = {name: text for name, text in sections.items() if not _is_verb(name)}
    parts = [opening.strip()]
    for words, command in verbs(app):
        notes = _BETWEEN.sub("", sections.get(words, "")).strip()
        made = "\n\n".join([BEGIN, *_described(words, command), END])
        parts.append(f"## {words}\n\n{made}" + (f"\n\n{notes}" if notes else ""))
    parts += [f"## {name}\n\n{text.strip()}" for name, text in by_hand.items()]
    return "\n\n".join(parts) + "\n"


def verbs(app: typer.Typer) -> Iterator[tuple[str, Any]]:
    """The command, then every verb and group that is not hidden, with its full name."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                yield from below(f"{words} {name}", inner)

    return below(TOP, typer.main.get_command(app))


def paragraphs(text: str) -> Iterator[tuple[list[str], bool]]:
    """The paragraphs of a help text as lines, and whether each is preformatted."""
    for block in re.split(r"\n[ ]*\n", text.strip("\n")):
        lines = block.splitlines()
        if preformatted := lines[:1] == ["\b"]:
            lines = lines[1:]
        if lines:
            yield lines, preformatted


def examples(command: Any) -> list[str]:
    """The example commands in a verb's help, without remarks."""
    found = []
    for lines, preformatted in paragraphs(command.help or ""):
        if preformatted and lines[0].strip() == EXAMPLES:
            found += [_REMARK.split(line.strip(), maxsplit=1)[0] for line in lines[1:]]
    return found


def parameters(command: Any) -> list[Any]:
    """A verb's arguments and options, except --help."""
    context = typer.Context(command, help_option_names=["-h", "--help"])
    return [p for p in command.get_params(context) if "--help" not in p.opts and not getattr(p, "hidden", False)]


def name(parameter: Any) -> str:
    """The name of an argument."""
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


# ---------------------------------------------------------------- a section


def _is_verb(heading: str) -> bool:
    return heading == TOP or heading.startswith(f"{TOP} ")


def _described(words: str, command: Any) -> Iterator[str]:
    known = parameters(command)
    yield f"```\n{_usage(words, command, known)}\n```"
    for lines, preformatted in paragraphs(command.help or ""):
        if not preformatted:
            yield _wrapped(_escaped(" ".join(line.strip() for line in lines)))
        elif words != TOP:  # its verbs and exit codes have tables of their own
            yield _preformatted(lines)
    inner = [each for each in getattr(command, "commands", {}).values() if not each.hidden]
    if inner:
        rows = [f"| {_link(f'{words} {each.name}')} | {_escaped(_short(each))} |" for each in inner]
        yield "\n".join(["| command | what it does |", "|---|---|", *rows])
    if known:
        yield "\n".join(["| argument, option | default | meaning |", "|---|---|---|", *map(_row, known)])


def _usage(words: str, command: Any, known: list[Any]) -> str:
    pieces = [words, "[OPTIONS]"] if any(_is_option(p) for p in known) else [words]
    for argument in (p for p in known if not _is_option(p)):
        shown = name(argument) if argument.required else f"[{name(argument)}]"
        pieces.append(f"{shown}..." if argument.nargs == -1 else shown)
    return " ".join([*pieces, "COMMAND …"] if hasattr(command, "commands") else pieces)


def _preformatted(lines: list[str]) -> str:
    """A preformatted block. A first line that ends with a colon is its heading; examples are bash."""
    heading, *rest = lines if lines[0].rstrip().endswith(":") else ["", *lines]
    language = ""
    if heading.strip() == EXAMPLES:
        language, rest = "bash", ["  # ".join(_REMARK.split(line.strip(), maxsplit=1)) for line in rest]
    block = f"```{language}\n" + textwrap.dedent("\n".join(rest)) + "\n```"
    return f"{heading.strip()}\n\n{block}" if heading else block


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)


def _short(command: Any) -> str:
    """The short description of a verb."""
    first = next(paragraphs(command.help or ""), ([""], False))[0]
    return str(command.short_help or " ".join(line.strip() for line in first))


def _row(parameter: Any) -> str:
    about = (parameter.help or "").rstrip(".")
    if not _is_option(parameter):
        first = _code(name(parameter))
        choices = getattr(parameter.type_descriptor, "choices", None)
        about += f": {', '.join(map(_text, choices))}" if choices else ""
    else:
        first = ", ".join(map(_code, sorted(parameter.opts, key=len, reverse=True)))
        if not parameter.is_flag:
            first += f" {_code(_value(parameter))}"
    return f"| {first} | {_default(parameter)} | {_escaped(about)} |"


def _value(option: Any) -> str:
    """The value of an option: its choices, or the name of its value."""
    choices = getattr(option.type_descriptor, "choices", None)
    return option.metavar or ("|".join(map(_text, choices)) if choices else option.name.upper())


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return _escaped(parameter.show_default)
    default = parameter.default
    shown = default not in (None, False, (), []) and not callable(default)
    return _code(_text(default)) if shown else ""


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _text(value: object) -> str:
    return str(value.value) if isinstance(value, enum.Enum) else str(value)


def _link(words: str) -> str:
    return f"[`{words}`](#{words.replace(' ', '-')})"


def _code(text: str) -> str:
    # Markdown renderers differ on how to escape a bar in a table cell; all support this form.
    return f"`{text}`" if "|" not in text else f"<code>{text.replace('|', '&#124;')}</code>"


def _escaped(text: str) -> str:
    """Escape Markdown in a text, except inside backticks."""
    pieces = re.split(r"(`[^`]*`)", text)
    plain = (re.sub(r"([*<_])", r"\\\1", piece).replace("|", "&#124;") for piece in pieces[::2])
    quoted = [_code(piece.strip("`")) for piece in pieces[1::2]]
    return "".join(part for pair in zip(plain, [*quoted, ""], strict=True) for part in pair)


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
