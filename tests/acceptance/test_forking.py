"""What the fault harness forks is a command like one that was started: same words, same end, a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop
from tests.harness.command import START
from tests.harness.faults import Command, Outcome

BROKEN = "pipelines: {shop: {source: {type: postgres, url: '${NOWHERE}'}, sink: {type: files, directory: out}}}"


@pytest.mark.parametrize("words", [["status", "broken.yaml"], ["status", "missing.yaml"], ["version"], ["--nonsense"]])
def test_it_says_and_ends_as_one_that_was_started(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    command = [*START, json.dumps({"mover": "loop"}), *words]
    started = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert Command(tmp_path).run(*words) == Outcome(started.returncode, started.stdout, started.stderr)


def test_each_has_its_own_id_environment_and_end(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=10)
    (tmp_path / "elsewhere").mkdir()
    other = Command(tmp_path / "elsewhere", environment={"DATABASE_URL": "postgresql://localhost:1/none"})
    (other.folder / "shop.yaml").write_text((tmp_path / "shop.yaml").read_text())
    halted = shop.command.start("run", "shop.yaml", point="gate.moved")
    assert halted.reached()["pid"] == halted.process.pid != os.getpid()
    assert other.run("run", "shop.yaml").code == 3, "its own environment leads to no server"
    assert halted.process.poll() is None, "the end of another is not its own"
    halted.kill()
    assert halted.process.returncode == -9
    with pytest.raises(ProcessLookupError):
        os.kill(halted.process.pid, 0)
    assert shop.command.run("run", "shop.yaml").code == 0
