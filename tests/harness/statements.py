"""Statements of SQLite stores are compiled once in a process.

SQLAlchemy compiles them for each engine anew, a quarter of what a short run takes, and tests open thousands of stores.
"""

from __future__ import annotations

from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy
from sqlalchemy import Engine

from penstock.store import sqlite


def share_compiled() -> None:
    """Let the engines of all SQLite stores share a dialect, and with it what was compiled for it."""
    first = sqlalchemy.create_engine("sqlite://")
    first.connect().close()  # the dialect asks what this SQLite can do
    dialect, compiled = first.dialect, first._compiled_cache
    first.dispose()

    def create_engine(*arguments: Any, **options: Any) -> Engine:
        engine = sqlalchemy.create_engine(*arguments, **options)
        engine.dialect, engine._compiled_cache = dialect, compiled
        return engine

    setattr(sqlite, "create_engine", create_engine)  # noqa: B010 (a name that the module has imported)


def rehearse() -> None:
    """Run a small pipeline twice, so that what its store asks is compiled."""
    from tests.engine.pipeline import Pipeline
    from tests.harness.doubles import Rows

    from penstock.core.limits import Limits
    from penstock.store import open_store

    with TemporaryDirectory(prefix="penstock-rehearsal-") as folder:
        rows = Rows()
        pipeline = Pipeline(folder, {"a": rows})
        for _ in range(2):
            rows.arrive(4)
            with closing(open_store("store.db", folder=folder)) as store:
                pipeline.open(store=store).run(Limits())
