"""Orders in a database, and the command run in this process: the ground on which sinks are asked what was there."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from penstock.cli import app

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
