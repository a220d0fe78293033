"""Servers that went another way than the one that was read: a failover, a restore. No row is passed over in silence."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.harness.postgres import PASSWORD, PostgresServer
from tests.sources.servers.machines import Replica
from tests.sources.servers.pipelines import ORDERS, Shop, arrive
from tests.sources.servers.slices import ids, orders, planned
from tests.sources.tables import execute

from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, StreamFailed, StreamRefused
from penstock.links.postgres.connection import Session, Target

TEN, FIFTEEN = [*range(1, 11)], [*range(1, 16)]


@dataclass(frozen=True)
class Site:
    """A primary that was left behind, and the heir that took over, which has rows of its own since."""

    primary: PostgresServer
    heir: Replica
    #: pipelines that have read ten orders at the primary; `beyond` ten more, after the heir had taken over
    shops: dict[str, Shop]
    #: slices planned at the primary before and after
    before: Slice
    after: Slice
    #: was connected to the heir when it took over
    witness: Session


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    shops = {name: Shop(tmp_path_factory.mktemp(name)) for name in ("known", "unknown", "beyond")}
    with ExitStack() as opened:
        primary = opened.enter_context(PostgresServer())
        execute(primary.url(), f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'")
        for name, shop in shops.items():
            execute(primary.database(name), ORDERS, "GRANT SELECT ON orders, kinds TO plain")
            arrive(primary.url(name), 10)
            shop.write(primary.url(name))
            shop.ran()
            assert (shop.ids(), shop.mark()["timeline"]) == (TEN, 1)
        heir = opened.enter_context(Replica(primary))
        origin, witness = orders(primary.url("known")), Session(Target.of(heir.url("known")))
        before = planned(origin)
        heir.catch_up()
        heir.promote()
        arrive(primary.url("beyond"), 10)
        shops["beyond"].ran()
        after = planned(origin)
        for name in shops:
            arrive(heir.url(name), 5)
        opened.callback(witness.close)
        yield Site(primary, heir, shops, before, after, witness)


def said(text: str) -> str:
    return " ".join(text.split())


class TestTheMark:
    def test_a_server_that_tells_where_it_took_over_goes_on_by_itself(self, site: Site) -> None:
        shop = site.shops["known"]
        shop.write(site.heir.url("known"))
        assert "the server went from timeline 1 to 2; it left 1 at" in said(shop.ran().output)
        assert (shop.ids(), shop.mark()["timeline"]) == (FIFTEEN, 2)

    def test_one_that_does_not_tell_stops_until_the_operator_vouches_for_it(self, site: Site) -> None:
        shop, url = site.shops["unknown"], site.heir.url("unknown", user="plain")
        shop.write(url)
        done = shop.run()
        assert done.exit_code == 2
        assert "the server is on timeline 2, and the mark was made on timeline 1: there was a failover" in said(
            done.output
        )
        assert "run `penstock rewind" in said(done.output)
        assert "or set `timeline: 2` on the source to confirm that nothing was lost" in said(done.output)
        assert (shop.ids(), shop.mark()["timeline"]) == (TEN, 1)
        shop.write(url, timeline=3)
        assert shop.run().exit_code == 2
        shop.write(url, timeline=2)
        shop.ran()
        assert (shop.ids(), shop.mark()["timeline"]) == (FIFTEEN, 2)
        shop.write(url)
        assert "nothing new" in shop.ran().output

    def test_rows_that_were_read_and_lost_stop_it_until_it_is_rewound(self, site: Site) -> None:
        shop = site.shops["beyond"]
        assert shop.ids() == [*range(1, 21)]
        shop.write(site.heir.url("beyond"))
        done = shop.run()
        assert done.exit_code == 2
        assert "It left timeline 1 at" in said(done.output)
        shop.ran("rewind", "--stream", "orders", "--to", "11", "--yes")
        shop.ran()
        assert (shop.ids(), shop.mark()["timeline"]) == (sorted([*range(1, 21), *range(11, 16)]), 2)


class TestAnOpenSlice:
    def test_it_is_finished_where_what_was_planned_is_known_to_be(self, site: Site) -> None:
        assert ids(orders(site.heir.url("known")), site.before) == TEN

    def test_it_is_refused_where_that_is_not_known(self, site: Site) -> None:
        url = site.heir.url("known", user="plain")
        with pytest.raises(StreamRefused, match="slice 1 was made on timeline 1") as refused:
            ids(orders(url), site.before)
        assert refused.value.next_step.startswith("drop the open slice with `penstock state recover FILE")
        assert ids(orders(url, timeline=2), site.before) == TEN

    def test_it_is_refused_where_it_is_known_not_to_be(self, site: Site) -> None:
        with pytest.raises(StreamRefused, match="It left timeline 1 at"):
            ids(orders(site.heir.url("known")), site.after)

    def test_a_replica_on_another_timeline_is_not_read(self, site: Site) -> None:
        with pytest.raises(ConnectionFailed, match="it went from timeline 1 to 2"):
            ids(orders(site.primary.url("known"), site.heir.url("known")), site.after)

    def test_whoever_is_connected_when_a_standby_takes_over_notices(self, site: Site) -> None:
        with pytest.raises(ConnectionFailed, match="the standby there has become a primary"):
            site.witness.refresh_server()


def copied(server: PostgresServer) -> Path:
    """The files of a server that is stopped, with their owner."""
    copy = server.directory / "copy"
    subprocess.run(["cp", "-a", str(server.data), str(copy)], check=True)
    return copy


class TestARestore:
    def test_a_server_that_went_back_is_noticed(self, shop: Shop) -> None:
        with PostgresServer() as server:
            url = server.database("shop")
            execute(url, ORDERS)
            arrive(url, 10)
            server.stop()
            copy = copied(server)
            server.start()
            arrive(url, 10)
            shop.write(url)
            shop.ran()
            origin = orders(url)
            slice_ = planned(origin)
            with origin.reading(slice_) as reading:
                server.stop()
                shutil.rmtree(server.data)
                copy.rename(server.data)
                server.start()
                arrive(url, 3)
                with pytest.raises(StreamFailed, match="is behind what was planned: it is at"):
                    reading.reader.open(reading.parts[0]).read_all()
            with pytest.raises(StreamRefused, match="where slice 1 was made: it was restored from an older copy"):
                ids(orders(url), slice_)
            done = shop.run()
            assert done.exit_code == 2
            assert "where the mark was made: it was restored from an older copy" in said(done.output)
            assert shop.ids() == [*range(1, 21)]
            shop.ran("rewind", "--stream", "orders", "--to", "11", "--yes")
            shop.ran()
            assert shop.ids() == sorted([*range(1, 21), *range(11, 14)])
