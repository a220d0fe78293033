"""Orders in a database, and the command run in this process: the ground on which sinks are asked what was there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app
from penstock.errors import StreamFailed

TABLE = "CREATE TABLE {} (id bigint PRIMARY KEY, note text, updated_at timestamptz NOT NULL)"
ORDERS = (
    "INSERT INTO {} SELECT g, 'order', timestamptz '2026-01-01Z' + g * interval '1 s' FROM generate_series({}, {}) g"
)


def penstock(*words: str) -> tuple[int, str]:
    """One command; its exit code, and what it said in one line."""
    done = CliRunner().invoke(app, words, prog_name="penstock")
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


def recover(said: str) -> str:
    """Run the command that a message names, and agree to what it asks; what it said."""
    found = re.search(r"penstock (state recover shop\.yaml --stream orders)", said)
    assert found, said
    code, answer = penstock(*found[1].split(), "--yes")
    assert code == 0, answer
    return answer


class _FailsAt:
    """A probe that fails when a point is reached."""

    def __init__(self, point: str) -> None:
        self.point = point

    def at(self, point: str, **_: Any) -> None:
        if point == self.point:
            raise StreamFailed("the worker died", next_step="run again")


def leave_open(file: str = "shop.yaml", at: str = "gate.asked") -> None:
    """A run whose slice is intended and not moved; or, at `gate.committed`, in the sink and not in the store."""
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(wiring, "make_probe", lambda: _FailsAt(at))
        code, said = penstock("run", file)
    assert code == 1, said
    assert "the worker died" in said, said
