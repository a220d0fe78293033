"""`on_failure`, `on_success` and `--env-file`: commands after a run, and the environment of a job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.test_command import penstock
from tests.harness.doubles import LoopMover
from tests.harness.forking import nursery
from typer.testing import CliRunner

from penstock import cli, wiring
from penstock.cli.shared import hooks
from penstock.cli.shared.hooks import Hooks, Outcome
from penstock.config import File, Spark
from penstock.config.env_file import read_env_file
from penstock.config.models import Pipeline
from penstock.core.history import HistoryLimits
from penstock.engine import Engine
from penstock.errors import InputError

FILE = """
on_failure: env | sort > $PENSTOCK_PIPELINE.failed
on_success: env | sort > $PENSTOCK_PIPELINE.done
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    streams: {orders: {cursor: updated_at, tiebreaker: id}, gone: {cursor: updated_at, tiebreaker: id}}
  dark:
    source: {type: postgres, url: "postgresql://localhost:1/nowhere"}
    sink: {type: files, directory: dark}
  own:
    on_success: echo mine > own.mine; echo to-stdout; exit 7
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: own}
    streams: {orders: {cursor: updated_at, tiebreaker: id}}
"""


@pytest.fixture
def shop(tmp_path: Path, database: str) -> Path:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz DEFAULT now())")
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        db.execute("INSERT INTO orders SELECT g, timestamptz '2026-01-01Z' FROM generate_series(1, 5) g")
    (tmp_path / "shop.yaml").write_text(FILE)
    (tmp_path / "job.env").write_text(f"DATABASE_URL={database}\n")
    return tmp_path


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """The command with a mover that starts no JVM and an environment without the database."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    order = [json.dumps({"mover": "loop"}), "run", "shop.yaml", "--env-file", "job.env", *words]
    forked = nursery().start(order, folder, environment)
    out, err = forked.communicate(timeout=300)
    return forked.returncode, out, err


def variables(path: Path) -> dict[str, str]:
    """What `env` has printed; lines without a name belong to the value before."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition("=")
        found[name] = value
    return found


def test_each_end_has_its_command_and_a_command_that_fails_changes_nothing(shop: Path) -> None:
    code, out, err = run(shop, "--json")
    assert code == 2, err
    failed = variables(shop / "shop.failed")
    assert (failed["PENSTOCK_STATUS"], failed["PENSTOCK_EXIT_CODE"]) == ("failed", "2")
    assert (failed["PENSTOCK_FILE"], failed["PENSTOCK_ROWS"]) == ("shop.yaml", "5"), "orders went on"
    assert failed["PENSTOCK_ERROR"].startswith("gone: ")
    assert failed["PENSTOCK_NEXT_STEP"]
    assert "DATABASE_URL" not in failed, "it is in the env file alone"
    assert "PATH" in failed
    dark = variables(shop / "dark.failed")
    assert dark["PENSTOCK_EXIT_CODE"] == "3"
    assert "localhost" in dark["PENSTOCK_ERROR"]
    assert (shop / "own.mine").read_text() == "mine\n"
    assert not (shop / "own.done").exists(), "its own command takes the place of the file's"
    eofs = [message for line in out.splitlines() if (message := json.loads(line))["type"] == "eof"]
    assert [eof["exit_code"] for eof in eofs] == [2, 3, 0]
    assert "to-stdout" in err
    assert "warning: own: the `on_success` command ended with exit code 7; the run's result is unchanged" in err


def test_a_run_that_another_process_holds_has_no_command(shop: Path) -> None:
    for code in (4, 130, 143):
        called = Hooks(_file(shop, on_failure="touch called", on_success="touch called"), {}, lambda: False)
        called.call("shop", Outcome(exit_code=code))
    assert not (shop / "called").exists()


def test_a_store_that_cannot_be_opened_is_a_failure_of_every_pipeline(shop: Path) -> None:
    (shop / "shop.yaml").write_text("store: postgresql://localhost:1/nowhere\n" + FILE)
    code, _, err = run(shop, "shop", "own")
    assert code == 3, err
    for name in ("shop", "own"):
        assert variables(shop / f"{name}.failed")["PENSTOCK_EXIT_CODE"] == "3"


def test_an_error_that_escapes_from_one_pipeline_leaves_the_others_alone(
    shop: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "shop.yaml").write_text(FILE)
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.chdir(shop)
    monkeypatch.setattr(wiring, "make_mover", lambda _: LoopMover())
    assemble = wiring.assemble

    def broken(file: File, pipeline: str, **others: Any) -> Engine:
        if pipeline == "shop":
            raise RuntimeError("a defect")
        return assemble(file, pipeline, **others)

    monkeypatch.setattr(wiring, "assemble", broken)
    result = CliRunner().invoke(cli.app, ["run", "shop.yaml", "shop", "own"])
    assert result.exit_code == 1, result.output
    assert "unexpected RuntimeError: a defect" in result.stderr
    assert variables(shop / "shop.failed")["PENSTOCK_ERROR"] == "RuntimeError: a defect"
    assert list((shop / "own" / "orders").iterdir()), "the other one has run"


def _file(folder: Path, **commands: Any) -> File:
    some = Pipeline("shop", "postgres", Spark(), "files", Spark(), {}, {}, {}, 1, 1.0)
    return File("shop.yaml", str(folder), "s", HistoryLimits(), Spark(), {"shop": some}, **commands)


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 0.3)
    began = time.monotonic()
    # The pipe is held by `sleep` too: the test would wait for it if it lived on.
    called = Hooks(_file(tmp_path, on_success="sleep 300 | cat; touch late"), dict(os.environ), lambda: False)
    called.call("shop", Outcome("complete", 0))
    assert time.monotonic() - began < 200
    assert not (tmp_path / "late").exists()
    assert "the `on_success` command took longer than 0.3 s and was killed" in capsys.readouterr().err
    stopped = Hooks(_file(tmp_path, on_success="sleep 300"), dict(os.environ), lambda: True)
    stopped.call("shop", Outcome("complete", 0))
    assert "was killed because this process received a signal" in capsys.readouterr().err


def test_what_a_message_holds_cannot_break_the_environment(tmp_path: Path) -> None:
    outcome = Outcome("failed", 1)
    outcome.fail("nul \0 and $(touch bad) `touch bad` ; touch bad" + "x" * 200_000, "see FILE")
    called = Hooks(_file(tmp_path, on_failure='echo "$PENSTOCK_ERROR" > said'), dict(os.environ), lambda: False)
    called.call("shop", outcome)
    assert (tmp_path / "said").read_text().startswith("nul  and $(touch bad) `touch bad` ; touch badxxx")
    assert not (tmp_path / "bad").exists()


# ---------------------------------------------------------------- the file of variables


def test_lines_of_an_env_file(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(
        "# comment\n; another\n\nA=1\nexport B = no\n".replace("export B = no", "export B=two words ")
        + 'C=\'single $A "x"\'\nD="dou\\"ble"\nE=\nF=a=b#c\n'
    )
    assert read_env_file(str(tmp_path / "env")) == {
        "A": "1",
        "B": "two words",
        "C": 'single $A "x"',
        "D": 'dou"ble',
        "E": "",
        "F": "a=b#c",
    }


@pytest.mark.parametrize("line", ["hunter2", "1A=hunter2", "A B=hunter2", 'A="hunter2', "A='hunter2' x", "=hunter2"])
def test_a_line_that_is_none_is_named_and_not_repeated(line: str, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"A=1\n{line}\n")
    with pytest.raises(InputError, match="line 2 of ") as refused:
        read_env_file(str(tmp_path / "env"))
    assert "hunter2" not in str(refused.value)


def test_a_variable_that_is_set_keeps_its_value_and_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    (tmp_path / "job.env").write_text("DATABASE_URL=postgresql://localhost:1/from_file\n")
    words = ("check", "shop.yaml", "shop", "--env-file")
    assert "from_file" in (said := penstock(*words, "job.env", folder=tmp_path)).stdout + said.stderr
    told = penstock(*words, "job.env", folder=tmp_path, DATABASE_URL="postgresql://localhost:1/from_environment")
    assert "from_environment" in told.stdout + told.stderr
    none = penstock(*words, "none.env", folder=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert "none.env cannot be read: No such file or directory" in " ".join(none.stderr.split())
