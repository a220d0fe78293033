"""The settings of a transaction that writes: for it alone, and never less than the server's own."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from penstock.links.postgres.connection import Target
from penstock.links.postgres.write_connection import WriteConnection


@pytest.mark.parametrize(("own", "within"), [("4MB", "64MB"), ("1GB", "1GB")])
def test_a_transaction_has_memory_and_is_durable(database: str, own: str, within: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        name = sql.Identifier(db.info.dbname)
        db.execute(sql.SQL("ALTER DATABASE {} SET work_mem = {}").format(name, sql.Literal(own)))
        db.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))
    shown = "SELECT current_setting('work_mem'), current_setting('synchronous_commit')"
    with closing(WriteConnection(Target.of(database), statement_timeout=None, lock_timeout=1)) as writing:
        with writing.transaction() as connection:
            assert connection.execute(shown).fetchone() == (within, "on")
        assert writing.connection.execute(shown).fetchone() == (own, "off")
