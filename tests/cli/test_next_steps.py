"""Every command in a next step can be pasted: it names the file, the pipeline if there are several, and it parses."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.generators import commands as reference

import penstock
from penstock.cli import app
from penstock.core.messages import Log, with_commands
from penstock.errors import filled

VERBS = dict(reference.verbs(app))
#: a command in a sentence ends at a backtick, at the end of a clause, or before a word that is no argument
_COMMAND = re.compile(
    r"penstock (?:(?:state|quarantine|token|wal readers|wal) )?[a-z]+ FILE(?: --[a-z-]+ [^\s`;,:)]+| --[a-z-]+)*"
)


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of a module but for docstrings; a value within one is written as 1."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from texts(child)


def commands() -> list[str]:
    top = Path(penstock.__file__).parent
    found = set()
    for path in top.rglob("*.py"):
        source = path.read_text()
        # Parsing every module would be half of what pytest needs to collect all tests.
        if not re.search(r"penstock .*FILE", source):
            continue
        for text in texts(ast.parse(source)):
            found |= set(_COMMAND.findall(text.replace("{}", "1")))
    return sorted(found)


def verb_of(command: str) -> str:
    words = shlex.split(command)
    return next(verb for count in (4, 3, 2) if (verb := " ".join(words[:count])) in VERBS)


@pytest.mark.parametrize("command", commands())
@pytest.mark.parametrize("pipeline", [None, "shop eu"])
def test_every_command_of_a_next_step_parses(command: str, pipeline: str | None) -> None:
    text = filled(command, "my shop.yaml", pipeline, "1")
    verb = verb_of(text)
    rest = shlex.split(text)[len(verb.split()) :]
    context = VERBS[verb].make_context(verb, rest, help_option_names=["-h", "--help"])
    assert context.params["file"] == "my shop.yaml"
    if pipeline and not re.fullmatch(r"penstock (status|warm|serve|token .*|wal .*)", verb):
        assert context.params.get("pipeline") == pipeline or context.params.get("pipelines") == [pipeline]


def test_there_are_commands_to_look_at() -> None:
    assert {verb_of(command) for command in commands()} >= {
        "penstock run",
        "penstock state recover",
        "penstock rewind",
        "penstock token revoke",
        "penstock wal inspect",
        "penstock wal readers list",
    }


def test_a_stream_name_with_a_space_is_quoted() -> None:
    step = "run `penstock state reset FILE --stream my orders`, then `penstock run FILE`"
    assert filled(step, "shop.yaml", "eu", "my orders") == (
        "run `penstock state reset shop.yaml --pipeline eu --stream 'my orders'`, then `penstock run shop.yaml eu`"
    )


def test_the_command_in_a_warning_can_be_pasted_too() -> None:
    warning = Log(level="warning", stream="my orders", text="see it: `penstock state show FILE --stream my orders`")
    said = with_commands(warning, "shop.yaml", "eu")
    assert isinstance(said, Log)
    assert said.text == "see it: `penstock state show shop.yaml --pipeline eu --stream 'my orders'`"
