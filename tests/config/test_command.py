"""`--set` in the real command, and `penstock schema`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.looked import undated
from typer.testing import CliRunner

from penstock import cli

TOP = Path(__file__).parents[2]
SHOP = (TOP / "examples" / "postgres-to-files.yaml").read_text()
URL = "postgresql://ann:hunter2@127.0.0.1:1/shop"


def verbs() -> dict[str, Any]:
    """Every verb that takes a pipeline file, by its words."""

    def below(words: tuple[str, ...], command: Any) -> list[tuple[tuple[str, ...], Any]]:
        if not hasattr(command, "commands"):
            return [(words, command)]
        return [found for name, inner in command.commands.items() for found in below((*words, name), inner)]

    found = dict(below((), typer.main.get_command(cli.app)))
    return {" ".join(words): verb for words, verb in found.items() if any(p.metavar == "FILE" for p in verb.params)}


VERBS = {name: verb for name, verb in verbs().items() if name not in ("log", "init", "import rustream")}
#: what some verbs need besides the file
MORE = {
    "rewind": ["--to", "1"],
    "state reset": ["--stream", "orders"],
    "state migrate": ["--stream", "orders"],
    "state undo": ["--stream", "orders"],
    "token create": ["--name", "shop", "--scope", "ingest"],
    "token revoke": ["--name", "shop"],
    "wal withdraw": ["--stream", "orders", "--producer", "shop"],
    "wal readers drop": ["--stream", "orders", "--reader", "lake/orders"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_with_a_pipeline_file_takes_overrides(verb: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    words = [*verb.split(), str(tmp_path / "shop.yaml"), *MORE.get(verb, []), "--set", "source.shcema=x"]
    result = CliRunner().invoke(cli.app, words, env={"DATABASE_URL": URL})
    assert result.exit_code == 2, result.output
    assert undated(result.stderr) == (
        "error: --set source.shcema=…: pipelines.shop.source.shcema: unknown key; did you mean 'schema'?\n"
        "Nothing was read or written.\nNext: correct --set, then run again\n"
    )


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_with_a_pipeline_file_takes_a_file_of_variables(verb: str) -> None:
    assert "--env-file" in [option for parameter in VERBS[verb].params for option in parameter.opts]


def test_an_override_changes_what_a_verb_looks_at_and_not_the_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    words = ["status", str(path), "--set", "store=other/here.db", "--set", f"source.url={URL}"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert f"There is no store at {tmp_path}/other/here.db" in result.stdout
    assert path.read_text() == SHOP
    assert [found.name for found in tmp_path.iterdir()] == ["shop.yaml"]


def test_the_schema_and_the_example_are_printed() -> None:
    schema = CliRunner().invoke(cli.app, ["schema"])
    assert json.loads(schema.stdout)["title"] == "penstock pipeline file"
    assert CliRunner().invoke(cli.app, ["schema", "--example"]).stdout.startswith("# Every key of a pipeline file")


def test_reading_a_file_does_not_load_what_only_the_reference_needs(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    program = (
        "import sys\nfrom penstock import wiring\n"
        f"wiring.load({str(tmp_path / 'shop.yaml')!r}, ['source.schema=x'])\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('jsonschema', 'rich', 'difflib')"
        " or name in ('penstock.config.schema', 'penstock.config.annotated',"
        " 'penstock.config.yaml_errors', 'penstock.config.misplaced_keys')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"DATABASE_URL": URL}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
