"""No file of the project names a place on somebody's machine."""

import re
import subprocess
from pathlib import Path

import pytest

# Spelt in pieces, so that this file is not itself found.
HOMES = "|".join(["home", "root", "work", "Users"])
MACHINE_PATH = re.compile(rf"(?<![\w.}}*])/(?:{HOMES})/\w[^\s'\"`]*")


def machine_paths(text: str) -> list[str]:
    return MACHINE_PATH.findall(text)


@pytest.mark.parametrize("home", HOMES.split("|"))
def test_a_machine_path_is_found(home: str) -> None:
    assert machine_paths(f"see '/{home}/me/x'") == [f"/{home}/me/x"]


@pytest.mark.parametrize("text", ["docs/work/x", "/usr/lib/postgresql", "$HOME/x", "./work/x"])
def test_other_paths_are_left_alone(text: str) -> None:
    assert machine_paths(text) == []


def test_no_file_names_a_machine_path(top: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=top,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (top / name).is_file()]
    assert "pyproject.toml" in names
    found = {name: machine_paths((top / name).read_text(errors="replace")) for name in names}
    assert {name: paths for name, paths in found.items() if paths} == {}
