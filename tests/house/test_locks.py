"""The locks: complete, hashed, and free of any address."""

import re
import tomllib
from pathlib import Path

import pytest

LOCKS = ["requirements.lock", "requirements-build.lock"]
ADDRESS = re.compile(r"://|^\s*-|--(?!hash=)[a-z-]+|@ file", re.MULTILINE)


def requirements(lock: str) -> dict[str, str]:
    """Each pinned name with all its lines."""
    blocks = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {match[1]: block for block in blocks if (match := re.match(r"([a-z0-9._-]+)==", block))}


def normal(requirement: str) -> str:
    """The name in a requirement as locks spell it."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return re.sub(r"[._-]+", "-", match[0]).lower()


@pytest.mark.parametrize(
    "line", ["--index-url x", "--find-links y", "-i z", "penstock @ file", "https" + "://host/simple"]
)
def test_an_address_is_recognised(line: str) -> None:
    assert ADDRESS.search(f"pytest==9.2.0 \\\n    --hash=sha256:00\n{line}\n")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_address(top: Path, name: str) -> None:
    lines = [line for line in (top / name).read_text().splitlines() if not line.lstrip().startswith("#")]
    pins = "\n".join(line.replace("    --hash=", "    hash=") for line in lines)
    assert not ADDRESS.search(pins)
    assert "://" not in (top / name).read_text()


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash(top: Path, name: str) -> None:
    pins = requirements((top / name).read_text())
    assert pins
    assert [pin for pin, block in pins.items() if "--hash=sha256:" not in block] == []


def test_the_lock_holds_every_dependency(top: Path) -> None:
    project = tomllib.loads((top / "pyproject.toml").read_text())["project"]
    wanted = {normal(each) for each in [*project["dependencies"], *project["optional-dependencies"]["dev"]]}
    assert wanted - requirements((top / "requirements.lock").read_text()).keys() == set()


def test_the_build_lock_holds_every_build_tool(top: Path) -> None:
    wanted = set(tomllib.loads((top / "pyproject.toml").read_text())["build-system"]["requires"])
    assert wanted - requirements((top / "requirements-build.lock").read_text()).keys() == set()


def test_both_locks_agree(top: Path) -> None:
    first, second = (requirements((top / name).read_text()) for name in LOCKS)
    version = re.compile(r"==(\S+)")
    both = first.keys() & second.keys()
    assert both
    assert {n: version.findall(first[n]) for n in both} == {n: version.findall(second[n]) for n in both}
