"""What must be equal in a command and its worker; a difference is named, and never a value."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.warm.compatibility import code_fingerprint, describe_process, find_difference, is_session_variable

ENVIRONMENT = {"DATABASE_URL": "postgresql://ann:secret@db/shop", "PATH": "/usr/bin", "TERM": "xterm"}


def described(environment: dict[str, str] | None = None) -> dict[str, Any]:
    return describe_process(ENVIRONMENT if environment is None else environment)


def test_the_same_process_is_the_same() -> None:
    assert find_difference(described(), described()) is None


def test_a_terminal_makes_no_difference() -> None:
    other = {
        **ENVIRONMENT,
        "TERM": "dumb",
        "COLUMNS": "80",
        "SSH_TTY": "x",
        "TMUX": "y",
        "_": "z",
        "INVOCATION_ID": "1",
    }
    assert find_difference(described(), described(other)) is None


@pytest.mark.parametrize(
    "variable",
    ["PGPASSWORD", "PATH", "JAVA_HOME", "SPARK_HOME", "TZ", "LANG", "LC_ALL", "PYTHONPATH", "TMPDIR", "XDG_CACHE_HOME",
     "PENSTOCK_JARS", "AWS_PROFILE", "HTTPS_PROXY", "HOME", "USER", "LD_LIBRARY_PATH", "TERMINFO", "PWD_FILE"],
)  # fmt: skip
def test_what_rows_may_depend_on_makes_one(variable: str) -> None:
    assert not is_session_variable(variable)
    said = find_difference(described(), described({**ENVIRONMENT, variable: "another secret"}))
    assert said == f"environment variables differ: {variable}"


def test_a_variable_that_is_missing_or_new_makes_one_too() -> None:
    less = {name: value for name, value in ENVIRONMENT.items() if name != "DATABASE_URL"}
    for worker, command in ((ENVIRONMENT, less), (less, ENVIRONMENT)):
        said = find_difference(described(worker), described(command))
        assert said == "environment variables differ: DATABASE_URL"
        assert "secret" not in said


def test_many_variables_are_counted() -> None:
    more = {**ENVIRONMENT, **{f"V{number}": "x" for number in range(5)}}
    assert find_difference(described(), described(more)) == "environment variables differ: V0, V1, V2 and 2 more"


def test_another_folder_mask_group_limit_or_namespace_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = described()
    for part, other in (
        ("version", "0.0.9"),
        ("code", "another"),
        ("python", "/usr/bin/python3"),
        ("umask", 0o027),
        ("groups", [4711]),
        ("limits", {}),
        ("namespaces", ["mnt:[1]"]),
    ):
        assert find_difference(here, {**here, part: other}) is not None, part
    monkeypatch.chdir(tmp_path)
    assert find_difference(here, described()) == f"the worker runs in the folder {here['folder'][0]}"


def test_a_folder_that_was_replaced_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    before = described()
    (tmp_path / "kept").mkdir()  # so that its inode is not given out again
    work.rename(tmp_path / "moved")
    work.mkdir()
    monkeypatch.chdir(work)
    assert find_difference(before, described()) is not None


def test_the_umask_is_only_looked_at() -> None:
    mask = os.umask(0o027)
    try:
        assert described()["umask"] == 0o027
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)


def test_an_edit_of_the_code_is_another_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "penstock"
    (package / "inside").mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1\n")
    (package / "inside" / "query.sql").write_text("select 1\n")
    (package / "__pycache__").mkdir()
    monkeypatch.setattr(penstock, "__file__", str(package / "__init__.py"))
    first = code_fingerprint()
    (package / "__pycache__" / "x.pyc").write_text("made by Python")
    assert code_fingerprint() == first
    (package / "inside" / "query.sql").write_text("select 22\n")
    assert code_fingerprint() != first


def test_an_upgrade_of_a_package_is_another_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = code_fingerprint()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert code_fingerprint() != first
    second = code_fingerprint()
    (tmp_path / "pyspark-4.1.5.dist-info").mkdir()
    assert code_fingerprint() != second


def test_looking_for_a_worker_imports_nothing_heavy() -> None:
    """A run without a worker must not get slower by it."""
    script = (
        "import sys; from penstock.warm import handover; handover.find_worker('x.yaml', lambda: None);"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in"
        " ('pyspark', 'pyarrow', 'pydantic', 'yaml', 'sqlalchemy', 'psycopg', 'typer', 'rich')))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
