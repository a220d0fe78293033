"""Roles that may see less: what the server will not tell is not known, and nothing else changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from tests.harness.postgres import PASSWORD, PostgresServer
from tests.sources.servers.pipelines import ORDERS, Shop, arrive
from tests.sources.servers.slices import ids, orders, planned
from tests.sources.tables import execute

from penstock.links.postgres.connection import VisibleFacts
from penstock.sources.postgres import PostgresSource

CONTROL = "pg_control_system(), pg_control_checkpoint(), pg_control_recovery()"
LOG = "pg_walfile_name(pg_lsn), pg_current_wal_insert_lsn(), pg_last_wal_replay_lsn()"


@pytest.fixture
def plain(postgres_server: PostgresServer, database: str) -> Iterator[str]:
    """The database as a role sees it that is a member of nothing; it may read ten orders."""
    execute(database, ORDERS, f"CREATE ROLE modest LOGIN PASSWORD '{PASSWORD}'", "GRANT SELECT ON orders TO modest")
    arrive(database, 10)
    yield postgres_server.url(urlsplit(database).path.removeprefix("/"), user="modest")
    execute(database, "DROP OWNED BY modest", "DROP ROLE modest")


def gaps(origin: PostgresSource) -> str:
    said = origin.explain("orders", origin.content("orders"))
    return "; ".join(remark.text for remark in said if remark.kind == "gap")


def test_a_role_that_does_not_see_what_others_do(database: str, plain: str, shop: Shop) -> None:
    shop.write(plain, horizon={"lag": 0.5})
    shop.ran()
    arrive(database, 5)
    runs = iter(range(20))
    while shop.ids() != [*range(1, 16)]:
        assert next(runs) < 19
        shop.ran()
        time.sleep(0.3)
    assert shop.mark()["timeline"] == 1
    assert "/" in shop.mark()["lsn"]


def test_a_server_that_does_not_tell_which_cluster_it_is(database: str, plain: str) -> None:
    execute(database, f"REVOKE EXECUTE ON FUNCTION {CONTROL} FROM PUBLIC")
    origin = orders(plain)
    assert origin._session.visible == VisibleFacts(system=False)
    assert (origin._session.identity.system, origin._session.server.timeline) == (None, 1)
    assert "recognized only by the database's oid and name" in gaps(origin)
    assert ids(origin, planned(origin)) == [*range(1, 11)]


def test_a_server_that_does_not_tell_where_it_is(database: str, plain: str) -> None:
    execute(database, f"REVOKE EXECUTE ON FUNCTION {LOG} FROM PUBLIC")
    origin = orders(plain)
    assert origin._session.visible == VisibleFacts(timeline=False, lsn=False)
    assert "a failover, a restore and a lagging replica are not noticed" in gaps(origin)
    slice_ = planned(origin)
    plan, mark = json.loads(slice_.plan), slice_.upto.document if slice_.upto else {}
    assert (plan["timeline"], plan["lsn"], mark["timeline"]) == (None, None, None)
    assert "lsn" not in mark
    assert ids(origin, slice_) == [*range(1, 11)]
    # What was planned by one who knew is read by one who does not, and the other way round.
    assert ids(origin, planned(orders(database))) == [*range(1, 11)]
    assert ids(orders(database), slice_) == [*range(1, 11)]
