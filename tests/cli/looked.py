"""A shop to look at, and proof that looking has changed nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Hashable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.harness.faults import Outcome
from tests.harness.forking import nursery

#: with this, a command that starts Spark fails
NO_SPARK = {"JAVA_HOME": "/nowhere", "SPARK_HOME": "/nowhere"}


@dataclass(frozen=True)
class Looking:
    """The command for those who only look: they need neither Java nor a mover."""

    folder: Path
    url: str | None

    def run(self, *words: str) -> Outcome:
        kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        environment = kept | NO_SPARK | ({"DATABASE_URL": self.url} if self.url else {})
        forked = nursery().start(["{}", *words], self.folder, environment)
        out, err = forked.communicate(timeout=120)
        return Outcome(forked.returncode, out, err)


def undated(text: str) -> str:
    """The lines of a run without their times."""
    return re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", text, flags=re.MULTILINE)


def document(done: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.out)
    return found


def tree(folder: Path) -> dict[str, bytes | list[str]]:
    """Every file below a folder with its bytes, a store with its rows; not what the fault harness puts there."""
    found: dict[str, bytes | list[str]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith("halt-") and not name.endswith(("-wal", "-shm")):
            found[name] = b"" if path.is_dir() else dump(path) if _is_sqlite(path) else path.read_bytes()
    return found


def _is_sqlite(path: Path) -> bool:
    return path.read_bytes()[:16] == b"SQLite format 3\x00"


def dump(path: Path) -> list[str]:
    """A database's tables and rows, from a copy: whoever opens one takes in what a killed process left beside it."""
    with tempfile.TemporaryDirectory() as copy:
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, copy)
        with closing(sqlite3.connect(Path(copy, path.name))) as db:
            return list(db.iterdump())


def rows(url: str) -> Hashable:
    """Every row of the orders with its version and place, and every relation with its file."""
    with psycopg.connect(url, autocommit=True) as db:
        orders = db.execute("SELECT xmin::text, ctid::text, * FROM orders ORDER BY ctid").fetchall()
        relations = db.execute("SELECT oid, relname, relfilenode, relnatts FROM pg_class ORDER BY oid").fetchall()
    return (*orders, *relations)
