"""The scripts: executable, strict, and clear about how they are called."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = ["setup", "lock", "test", "check", "bench", "soak", "demo"]


def scripts(top: Path) -> list[Path]:
    return [*sorted((top / "script").iterdir()), top / ".ci" / "run"]


def test_the_promised_scripts_are_there(top: Path) -> None:
    assert set(SCRIPTS) <= {path.name for path in (top / "script").iterdir()}


def test_every_script_is_executable_and_strict(top: Path) -> None:
    loose = [
        path.name
        for path in scripts(top)
        if not os.access(path, os.X_OK)
        or not path.read_text().startswith("#!/usr/bin/env bash\n# ")
        or "\nset -euo pipefail\n" not in path.read_text()
    ]
    assert loose == []


@pytest.mark.parametrize("script", ["bench", "soak"])
@pytest.mark.parametrize("name", ["", "nothing_of_this_name", "../tests/conftest"])
def test_an_unknown_name_lists_the_known_ones(top: Path, script: str, name: str) -> None:
    ended = subprocess.run([f"script/{script}", name], cwd=top, capture_output=True, text=True)
    assert ended.returncode == 2
    assert f"usage: script/{script} NAME" in ended.stderr


def test_check_refuses_what_it_does_not_know(top: Path) -> None:
    ended = subprocess.run(["script/check", "--fsat"], cwd=top, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "script/check [--fast]" in ended.stderr


def test_setup_refuses_an_interpreter_that_does_not_fit(top: Path, tmp_path: Path) -> None:
    # In a copy: the real one would find that nothing is missing, and stop before it looks.
    copy = tmp_path / "script" / "setup"
    copy.parent.mkdir()
    copy.write_bytes((top / "script" / "setup").read_bytes())
    ended = subprocess.run(["bash", copy], env=os.environ | {"PYTHON": "/bin/false"}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "PYTHON=/bin/false is not a working Python 3.11, 3.12 or 3.13" in ended.stderr
    assert "next: unset PYTHON" in ended.stderr
