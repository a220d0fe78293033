"""Spark's procedures on a table: their one row of an answer, and which of their failures are others' doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import StreamFailed
from penstock.lake.tables import undone
from penstock.lake.upkeep.work import UNHARMED, Work


class Conflict(Exception):
    """Others changed the files that were being rewritten: nothing of ours happened."""


def ask(work: Work, sql: str, settings: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """The first row of what Spark answers; Conflict if other writers undid it, StreamFailed for anything else.

    `settings` hold for this statement alone.
    """
    session = work.spark.session()
    try:
        rows: Any = work.spark.wait(lambda: _answer(session, sql, settings or {}), failed=f"{work.name}: Spark failed")
    except StreamFailed as error:
        text = str(error.__cause__)
        if undone(text):
            lines = text.splitlines()
            raise Conflict(next((line.strip(": ") for line in lines if "Exception" in line), lines[0])) from error
        error.safe = UNHARMED
        raise
    found: Mapping[str, Any] = rows[0].asDict() if rows else {}
    return found


def _answer(session: Any, sql: str, settings: Mapping[str, str]) -> Any:
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        return session.sql(sql).collect()
    finally:
        for name in settings:
            session.conf.unset(name)
