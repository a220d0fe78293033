"""The import contract: kept by the tree as it is, broken by each thing that it is there to prevent."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = "Imports go one way through the rooms"
PURE = "core, ports and engine know neither Spark nor a driver nor a framework"
HEAVY = {
    "adbc_driver_manager",
    "adbc_driver_postgresql",
    "alembic",
    "psycopg",
    "pyarrow",
    "pydantic",
    "pyspark",
}
HEAVY |= {"rich", "sqlalchemy", "typer", "yaml"}


def lint(top: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"],
        cwd=top,
        # The checkout's own package is installed: the copy must come before it.
        env=os.environ | {"PYTHONPATH": str(top / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def copy(top: Path, tmp_path: Path) -> Path:
    """The package and its contract in another place, to be spoilt."""
    shutil.copytree(top / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(top / "pyproject.toml", tmp_path)
    return tmp_path


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"\n{line}\n")


def test_the_contract_is_kept(top: Path) -> None:
    ended = lint(top)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{LAYERS} KEPT" in ended.stdout
    assert f"{PURE} KEPT" in ended.stdout


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("sources", "import penstock.sinks", LAYERS),
        ("sinks", "import penstock.sources", LAYERS),
        ("sources", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import penstock.sinks", LAYERS),
        ("engine", "import penstock.store", LAYERS),
        ("core", "import penstock.ports", LAYERS),
        ("engine", "import pyspark", PURE),
        ("core", "import pydantic", PURE),
    ],
)
def test_a_wrong_import_breaks_it(copy: Path, room: str, line: str, contract: str) -> None:
    append(copy / "src" / "penstock" / room / "__init__.py", line)
    ended = lint(copy)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert f"{contract} BROKEN" in ended.stdout


def test_a_room_without_a_layer_breaks_it(copy: Path) -> None:
    (copy / "src" / "penstock" / "attic.py").write_text('"""Not in the contract."""\n')
    ended = lint(copy)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "attic" in ended.stdout


def loaded_by(packages: str) -> set[str]:
    """The heavy libraries that importing every module of these packages brings in."""
    program = f"""
import importlib, pkgutil, sys
for name in {packages!r}.split():
    room = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(room, "__path__", []), name + "."):
        importlib.import_module(found.name)
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return HEAVY & set(ended.stdout.split())


def test_core_ports_and_engine_load_nothing_heavy() -> None:
    assert loaded_by("penstock.links.postgres") >= {"psycopg"}
    assert loaded_by("penstock.errors penstock.core penstock.ports penstock.engine") == set()
