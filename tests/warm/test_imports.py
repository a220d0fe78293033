"""What a worker imports before it forks: a lake's libraries only where a pipeline has a lake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SINKS = {"files": "files, directory: out", "lake": "lake"}
PIPELINE = 'pipelines: {shop: {source: {type: postgres, url: "postgresql://h/d"}, sink: {type: files, directory: out}}}'
#: a worker's start up to its imports, without Spark and without serving
START = """
import sys
from tests.harness.no_spark import PipedProcess
from penstock import wiring
from penstock.warm import imports, starting
class Ends(Exception): ...
def end(): raise Ends
imports.freeze_for_forks = end
starting.make_spark = PipedProcess
try:
    starting.serve(
        wiring.load("shop.yaml"), idle_seconds=1, memory_limit=1, description={}, preload=lambda: None, tell=print
    )
except Ends:
    print("adbc_driver_postgresql" in sys.modules, "pyspark" in sys.modules, "pyiceberg" in sys.modules)
"""


@pytest.mark.parametrize("sink", ["files", "lake"])
def test_a_worker_imports_what_its_runs_need(sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE.replace("files, directory: out", SINKS[sink]))
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    said = subprocess.run([sys.executable, "-c", START], cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout.splitlines()[-1:] == [f"True True {sink == 'lake'}"], said.stderr
