"""The command as a process: help, bad input, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.looked import undated
from tests.harness.forking import nursery

from penstock import __version__, sources

GOOD = """\
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
  other:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out2}
"""
ENVIRONMENT = {"DATABASE_URL": "postgresql://ann:hunter2@localhost:1/shop"}
SAFE = "Nothing was read or written."
CORRECT = "Next: correct the file, then run the same command again"


def penstock(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which is forked."""
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    forked = nursery().start(["{}", *words], folder, kept | environment)
    out, err = forked.communicate(timeout=60)
    return subprocess.CompletedProcess(words, forked.returncode, out, err)


def refused(*words: str, folder: Path, **environment: str) -> str:
    """What a command that is refused says; it exits with 2 and touches nothing."""
    before = sorted(folder.iterdir())
    done = penstock(*words, folder=folder, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(folder.iterdir()) == before
    return undated(done.stderr)


def write(folder: Path, text: str) -> None:
    (folder / "shop.yaml").write_text(text)


def test_a_typo_in_a_key(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("directory: out}", "directroy: out}"))
    assert refused("run", "shop.yaml", folder=tmp_path, **ENVIRONMENT) == (
        "error: shop.yaml:4: pipelines.shop.sink.directroy: unknown key; did you mean 'directory'?\n"
        f"{SAFE}\n{CORRECT}\n"
    )


def test_an_unknown_source_type(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("postgres,", "postgre,", 1))
    assert refused("run", "shop.yaml", folder=tmp_path, **ENVIRONMENT) == (
        "error: shop.yaml:3: pipelines.shop.source.type: unknown source type 'postgre'; "
        f"did you mean 'postgres'? Known: {', '.join(sources.types())}\n{SAFE}\n{CORRECT}\n"
    )


def test_a_missing_environment_variable(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("${DATABASE_URL}", "postgresql://db/x", 1))
    assert refused("run", "shop.yaml", folder=tmp_path) == (
        "error: shop.yaml:6: pipelines.other.source.url: environment variable DATABASE_URL is not set; "
        f"set it, or write ${{DATABASE_URL:-default}}\n{SAFE}\n{CORRECT}\n"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    assert refused("status", "shop.yaml", folder=tmp_path) == (
        f"error: shop.yaml: no such file\n{SAFE}\nNext: pass the path of a pipeline file (YAML)\n"
    )


def test_an_unknown_pipeline(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert refused("run", "shop.yaml", "shpo", folder=tmp_path, **ENVIRONMENT) == (
        "error: there is no pipeline 'shpo' in shop.yaml; did you mean 'shop'?\n"
        f"{SAFE}\nNext: use one of the file's pipelines\n"
    )


def test_a_stream_of_one_of_several_pipelines(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert refused("run", "shop.yaml", "--stream", "a", folder=tmp_path, **ENVIRONMENT) == (
        f"error: shop.yaml has 2 pipelines: shop, other\n{SAFE}\n"
        "Next: name one of them, for example: penstock run shop.yaml shop --stream a\n"
    )


def test_nothing_to_reset(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    words = ("state", "reset", "shop.yaml", "--pipeline", "shop", "--stream", "a", "--yes")
    assert refused(*words, folder=tmp_path, **ENVIRONMENT) == (
        f"error: there is no store at {tmp_path}/.penstock/store.db: no pipeline of this file has run yet, "
        f"so there is nothing to reset\n{SAFE}\nNext: penstock run shop.yaml\n"
    )


def test_nothing_to_rewind(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    words = ("rewind", "shop.yaml", "--to", "5", "--yes")
    assert refused(*words, folder=tmp_path, **ENVIRONMENT) == (
        f"error: shop.yaml has 2 pipelines: shop, other\n{SAFE}\n"
        "Next: name one of them, for example: penstock rewind shop.yaml --pipeline shop --to 5\n"
    )
    assert refused(*words, "--pipeline", "shop", folder=tmp_path, **ENVIRONMENT) == (
        f"error: there is no store at {tmp_path}/.penstock/store.db: no pipeline of this file has run yet, "
        f"so there is nothing to rewind\n{SAFE}\nNext: penstock run shop.yaml\n"
    )
    done = penstock("rewind", "shop.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Missing option '--to'" in done.stderr


def test_without_a_terminal_recover_needs_yes(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    done = penstock("state", "recover", "shop.yaml", "--pipeline", "shop", folder=tmp_path, **ENVIRONMENT)
    assert done.returncode == 2
    assert done.stdout == (
        "shop: the marks of every stream are set to what the sink holds; open slices are dropped.\n"
        "Slices that are incomplete in the sink are withdrawn, newest first.\n"
    )
    assert done.stderr == (
        f"error: this command needs a confirmation, and there is no terminal to ask on\n"
        f"{SAFE}\nNext: add --yes to the command\n"
    )


@pytest.mark.parametrize("verb", [["status"], ["state", "show"]])
def test_looking_makes_no_store(tmp_path: Path, verb: list[str]) -> None:
    write(tmp_path, GOOD)
    done = penstock(*verb, "shop.yaml", folder=tmp_path, **ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"There is no store at {tmp_path}/.penstock/store.db: no pipeline of this file has run yet.\n"
        "If the sink already holds slices, rebuild the store: penstock state recover shop.yaml\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["shop.yaml"]


def test_with_json_an_eof_always_comes(tmp_path: Path) -> None:
    write(tmp_path, "pipelines: 5\n")
    done = penstock("run", "shop.yaml", "--json", folder=tmp_path)
    log, eof = map(json.loads, done.stdout.splitlines())
    what = "shop.yaml:1: pipelines: expected a mapping, not 5; write it as 'key: value'"
    assert (log["type"], log["level"], log["text"]) == ("log", "error", what)
    assert (eof["type"], eof["exit_code"], eof["status"], eof["reason"]) == ("eof", 2, "failed", what)
    assert eof["next_step"] == CORRECT.removeprefix("Next: ")
    assert (done.returncode, undated(done.stderr)) == (2, f"error: {what}\n{SAFE}\n{CORRECT}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-rows", "0"], "'0' is not a number of rows, such as 100000"),
        (["--max-rows", "many"], "'many' is not a number of rows, such as 100000"),
        (["--time-limit", "soon"], "'soon' is not a duration such as 90, 90s, 10m or 1h30m"),
        (["--time-limit", "0s"], "the duration must be greater than 0"),
        (["--wrong"], "--wrong"),
    ],
)
def test_bad_options(tmp_path: Path, words: list[str], message: str) -> None:
    done = penstock("run", "shop.yaml", *words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_version(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "version"], capture_output=True, text=True, check=True)
    assert done.stdout == penstock("version", folder=tmp_path).stdout == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    "words", ["", "run", "status", "rewind", "state", "state show", "state reset", "state recover", "version"]
)
def test_every_verb_has_help(tmp_path: Path, words: str) -> None:
    verb = words.split()
    done = penstock(*verb, "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['penstock', *verb])}")
    assert "Examples:" in done.stdout or words in ("", "state", "version")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    script = """
import sys
from penstock.cli import app
try:
    app(["--help"], prog_name="penstock")
except SystemExit:
    pass
heavy = {"alembic", "psycopg", "pyarrow", "pydantic", "pyspark", "rich", "sqlalchemy", "yaml"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == "[]\n"


def test_a_defect_is_told_without_a_traceback_unless_asked(tmp_path: Path) -> None:
    script = """
from penstock import wiring
from penstock.cli import main
def broken(*_):
    raise RuntimeError("oops")
wiring.load = broken
import sys
sys.argv = ["penstock", "run", "shop.yaml", "--json"]
main()
"""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=dict(os.environ) | environment,
        )

    done = run()
    assert done.returncode == 1
    assert undated(done.stderr) == (
        "error: unexpected RuntimeError: oops\nNothing was lost: a mark moves only after its slice is committed.\n"
        "Next: this is a bug in penstock: please report it with the output under PENSTOCK_TRACEBACK=1\n"
    )
    assert json.loads(done.stdout.splitlines()[-1])["exit_code"] == 1
    assert "Traceback" in run(PENSTOCK_TRACEBACK="1").stderr
