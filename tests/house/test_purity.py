"""The core is pure: the standard library only, and of it no clock, no randomness, no input or output."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

OWN = ("penstock.core", "penstock.errors")
BANNED_MODULES = {
    "asyncio",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
BANNED_NAMES = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "input",
    "open",
    "pathlib.Path",
    "print",
    "uuid.uuid1",
    "uuid.uuid4",
}


def impurities(source: str) -> list[str]:
    """What a module imports or names that the core must not, as `line: name`."""
    tree = ast.parse(source)
    origins: dict[str, str] = {}
    found = []
    for node in ast.walk(tree):
        for local, origin in imported(node):
            origins[local] = origin
            if not allowed(origin):
                found.append(f"{getattr(node, 'lineno', 0)}: {origin}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node, origins)) in BANNED_NAMES:
            found.append(f"{node.lineno}: {name}")
    return found


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that an import statement brings in, with where it comes from."""
    if isinstance(node, ast.Import):
        for each in node.names:
            yield each.asname or each.name.partition(".")[0], each.name
    elif isinstance(node, ast.ImportFrom):
        for each in node.names:
            yield each.asname or each.name, f"{'.' * node.level}{node.module or ''}.{each.name}"


def allowed(origin: str) -> bool:
    if any(origin == own or origin.startswith(own + ".") for own in OWN):
        return True
    first = origin.partition(".")[0]
    return first in sys.stdlib_module_names and first not in BANNED_MODULES


def dotted(node: ast.expr, origins: dict[str, str]) -> str | None:
    """The full name that an expression stands for, as far as the module's own imports tell."""
    if isinstance(node, ast.Name):
        return origins.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value, origins)):
        return f"{owner}.{node.attr}"
    return None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import datetime\nx = datetime.datetime.now()", "2: datetime.datetime.now"),
        ("from datetime import datetime as dt\nf(clock=dt.utcnow)", "2: datetime.datetime.utcnow"),
        ("from datetime import date\ndate.today()", "2: datetime.date.today"),
        ("import time\ntime.time()", "1: time"),
        ("from time import time", "1: time.time"),
        ("def f():\n    import random", "2: random"),
        ("from uuid import uuid4\nuuid4()", "2: uuid.uuid4"),
        ("import pyarrow as pa", "1: pyarrow"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark.sql", "3: pyspark.sql"),
        ("import penstock.ports", "1: penstock.ports"),
        ("from . import marks", "1: ..marks"),
        ("open('x')", "1: open"),
    ],
)
def test_an_impurity_is_found(source: str, found: str) -> None:
    assert found in impurities(source)


def test_pure_code_is_left_alone() -> None:
    pure = "from datetime import datetime, UTC\nfrom uuid import uuid5\nimport penstock.core.marks\n"
    assert impurities(pure + "datetime.fromtimestamp(0, UTC)\nuuid5\nself.now\nmarks.open()\n") == []


def test_the_core_is_pure(top: Path) -> None:
    modules = sorted((top / "src" / "penstock" / "core").rglob("*.py"))
    assert modules
    found = {module.name: impurities(module.read_text()) for module in modules}
    assert {name: what for name, what in found.items() if what} == {}
