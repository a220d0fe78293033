"""A short seed of script/soak ops."""

from __future__ import annotations

from pathlib import Path

from tests.harness.postgres import PostgresServer
from tests.soak.ops import Plan, soak


def test_a_short_seed(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """A column is added in the middle; every copy equals the tables at the end."""
    result = soak(2, Plan(seconds=10, writers=3), tmp_path, postgres_server.database(), postgres_server.database())
    assert result.wrong == []
    assert result.images > 1000
    assert result.documents > 4000
    assert result.transactions["committed"] > 10
    assert {name for name in result.ends if name.endswith("killed")} == {"postgres killed", "files killed"}
