"""Stripe's events applied to its lists through the real command: changes and deletes end right in keyed tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.rest_shop import FILES
from tests.acceptance.stripe_shop import HARD, SOFT, StripeShop, delivered, lines

both_deletes = pytest.mark.parametrize("deletes", [HARD, SOFT], ids=["hard", "soft"])
DAY = 86400


def name(number: int) -> str:
    return f"cu_{number:08}"


def change_some(shop: StripeShop, first: int) -> None:
    """Change one object, delete one, change and delete one, and create one; each a second after the other."""
    for number, (what, place) in enumerate([("alter", 0), ("delete", 1), ("alter", 2), ("delete", 2)]):
        shop.wait(1)
        if what == "alter":
            shop.server.alter("customers", name(first + place), amount=-number - first)
        else:
            shop.server.delete("customers", name(first + place))
    shop.server.create("customers", amount=-first)


@both_deletes
def test_what_is_created_changed_and_deleted_arrives(deletes: str, database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(deletes)
        shop.server.arrive("customers", 250)
        shop.wait()
        shop.run()
        assert shop.rows() == shop.expected()
        shop.wait()
        change_some(shop, 3)
        assert delivered(shop.run()) == 5
        assert shop.rows() == shop.expected()
        # The list has the new object too, once the lag is over.
        shop.wait()
        assert delivered(shop.run()) == 1
        shop.wait()
        shop.server.forget_requests()
        assert delivered(shop.run()) == 0
        assert sorted(each["path"] for each in shop.server.requests()) == ["/v1/customers", "/v1/events"]


@pytest.mark.parametrize(
    ("deletes", "point", "nth"),
    [(HARD, "rest.page_spooled", 1), (HARD, "gate.intended", 2), (SOFT, "gate.intended", 2)],
    ids=["hard, first page", "hard", "soft"],
)
def test_objects_change_and_go_while_the_backfill_runs(
    deletes: str, point: str, nth: int, database: str, tmp_path: Path
) -> None:
    """Some on pages that were read, some on pages that were fetched ahead, some on pages that are still to come."""
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(deletes, slice_bytes=1 << 14)
        shop.server.arrive("customers", 900)
        shop.wait()
        running = shop.command.start("run", "stripe.yaml", point=point, nth=nth)
        running.reached()
        for first in (5, 450, 700, 880, 890):
            change_some(shop, first)
        running.go()
        done = running.end()
        assert done.code == 0, done.err
        shop.wait()
        shop.run()
        assert shop.rows() == shop.expected()


def test_a_stream_whose_first_pages_are_fetched_ahead_of_its_turn(database: str, tmp_path: Path) -> None:
    """Its position in the feed is from before those pages, whatever happens until its turn comes."""
    with StripeShop.open(tmp_path, database, "charges", "customers") as shop:
        shop.write(streams=dict.fromkeys(("charges", "customers"), "{columns: {amount: int64}}"))
        for each in ("charges", "customers"):
            shop.server.arrive(each, 150)
        shop.wait()
        running = shop.command.start("run", "stripe.yaml", point="gate.intended")
        running.reached()
        asked = [each for each in shop.server.requests("customers") if each["query"]["limit"] != "1"]
        assert asked, "pages were fetched ahead"
        shop.wait(2000)
        change_some(shop, 140)
        running.go()
        done = running.end()
        assert done.code == 0, done.err
        shop.wait()
        shop.run()
        assert shop.rows() == shop.expected()


POINTS = ("rest.page_spooled", "gate.spooled", "gate.intended", "gate.moved", "gate.committed", "gate.advanced")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, database: str, tmp_path: Path) -> None:
    """In the backfill, and again while events are applied; objects change before each restart."""
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD, slice_bytes=1 << 14)
        shop.server.arrive("customers", 300)
        shop.wait()
        shop.command.kill_at(point, "run", "stripe.yaml", nth=2)
        for first in (2, 150, 290):
            change_some(shop, first)
        shop.wait()
        shop.run()
        change_some(shop, 20)
        shop.command.kill_at(point, "run", "stripe.yaml")
        change_some(shop, 30)
        shop.server.delete("customers", name(20))
        for _ in range(2):
            shop.wait()
            shop.run()
        assert shop.rows() == shop.expected()


def test_an_event_that_is_listed_late_arrives_once(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path) as shop:
        shop.write(sink=FILES, streams={"customers": "{columns: {amount: int64}}"}, source="overlap: 5m")
        shop.server.arrive("customers", 10)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(1), amount=-1, late=200)
        shop.wait(1)
        shop.server.alter("customers", name(2), amount=-2)
        assert delivered(shop.run()) == 1
        for _ in range(6):
            shop.wait(100)
            shop.run()
        paths = sorted((tmp_path / "out" / "customers").rglob("*.ndjson"))
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        counts = Counter((row["id"], row["amount"]) for row in rows)
        assert set(counts.values()) == {1}
        assert {(name(1), -1), (name(2), -2)} <= set(counts)
        assert len(counts) == 12


def test_a_late_change_does_not_bring_back_a_deleted_object(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 10)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(1), amount=-1, late=200)
        shop.wait(1)
        shop.server.delete("customers", name(1))
        shop.run()
        assert name(1) not in dict(shop.rows())
        shop.wait(300)
        shop.run()
        assert shop.rows() == shop.expected()


def test_changes_of_one_second_apply_in_the_order_of_the_feed(database: str, tmp_path: Path) -> None:
    """With runs between them, so that each has to replace the one before in the table."""
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(SOFT)
        shop.server.arrive("customers", 10)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(1), amount=-1)
        shop.server.alter("customers", name(1), amount=-2)
        shop.server.alter("customers", name(2), amount=-1)
        shop.run()
        assert shop.rows() == shop.expected()
        shop.server.alter("customers", name(1), amount=-3)
        shop.server.delete("customers", name(2))
        shop.run()
        assert shop.rows() == shop.expected()


def test_after_a_month_without_a_run_objects_are_read_again(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD, source="rescan: 45d")
        shop.server.add("customers", [shop.server.now - 20 * DAY] * 3)  # at the end outside of the rescan
        shop.server.set_account({"id": "acct_1", "created": shop.server.now - 100 * DAY})
        shop.server.arrive("customers", 250)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(0), amount=-1)
        shop.server.alter("customers", name(100), amount=-2)
        shop.server.delete("customers", name(101))
        shop.wait(31 * DAY)
        shop.server.alter("customers", name(102), amount=-3)
        done = shop.run()
        said = lines(done)
        assert "events since 2026-01-01" in said
        assert "are gone, because Stripe keeps them for 30 days: objects created in the last 45d are read again" in said
        rows = dict(shop.rows())
        assert (rows[name(100)], rows[name(102)]) == (-2, -3)
        # What the message says: older objects and deletes are not found.
        assert rows[name(0)] == 0
        assert name(101) in rows
        # From there on events are followed again.
        shop.wait()
        change_some(shop, 200)
        assert "are gone" not in lines(shop.run())
        rows = dict(shop.rows())
        assert name(201) not in rows
        assert rows[name(200)] == -200


@pytest.mark.parametrize(
    ("point", "nth"), [("rest.page_spooled", 1), ("gate.intended", 1), ("gate.committed", 2)], ids=str
)
def test_killed_while_objects_are_read_again(point: str, nth: int, database: str, tmp_path: Path) -> None:
    """A page of that reading does not bring back what is deleted before the restart."""
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD, slice_bytes=1 << 14)
        shop.server.arrive("customers", 400)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(100), amount=-2)
        shop.wait(31 * DAY)
        shop.command.kill_at(point, "run", "stripe.yaml", nth=nth)
        for first in (10, 200, 390):
            change_some(shop, first)
        for _ in range(2):
            shop.wait()
            shop.run()
        assert shop.rows() == shop.expected()


def test_a_quiet_stream_that_is_followed_every_day_loses_nothing(database: str, tmp_path: Path) -> None:
    """Its position moves on without rows, and without Spark."""
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 10)
        shop.wait()
        shop.run()
        shop.command.mover = "spark"
        for _ in range(3):
            shop.wait(15 * DAY)
            done = shop.run()
            assert delivered(done) == 0
            assert "are gone" not in lines(done)
            assert [each for each in done.messages if each["type"] == "mover_status"] == []
        shop.command.mover = "loop"
        shop.server.delete("customers", name(1))
        shop.run()
        assert shop.rows() == shop.expected()


def test_the_feed_is_read_once_for_all_streams(database: str, tmp_path: Path) -> None:
    names = ("customers", "charges", "refunds")
    with StripeShop.open(tmp_path, database, *names) as shop:
        shop.write(streams=dict.fromkeys(names, "{columns: {amount: int64}}"))
        for each in names:
            shop.server.arrive(each, 20)
        shop.wait()
        shop.run()
        shop.wait(700)
        shop.server.alter("charges", "ch_00000001", amount=-1)
        shop.server.alter("refunds", "re_00000001", amount=-2)
        shop.server.forget_requests()
        assert delivered(shop.run()) == 2
        assert len(shop.server.requests("events")) == 1
        for each in names:
            assert shop.rows(each) == shop.expected(each)


def test_live_that_is_switched_on_later_reads_objects_again(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write("live: false")
        shop.server.arrive("customers", 50)
        shop.wait()
        shop.run()
        shop.server.alter("customers", name(1), amount=-1)
        shop.wait()
        assert delivered(shop.run()) == 0
        shop.write(HARD)
        assert "the stream was read without events until now" in lines(shop.run())
        assert shop.rows() == shop.expected()
        change_some(shop, 10)
        shop.run()
        assert shop.rows() == shop.expected()


def test_a_limit_on_rows_cuts_the_events(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 20)
        shop.wait()
        shop.run()
        for number in range(10):
            shop.server.alter("customers", name(number), amount=-number)
        assert delivered(shop.run("--max-rows", "4")) == 4
        assert delivered(shop.run()) == 6
        assert shop.rows() == shop.expected()


def test_another_version_of_the_api_in_events_is_said_once(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 20)
        shop.wait()
        shop.run()
        shop.server.set_feed(api_version="2019-05-16")
        change_some(shop, 3)
        said = lines(shop.run())
        assert said.count("objects in events are written in version 2019-05-16 of the API, and lists are read in") == 1
        assert shop.rows() == shop.expected()


def test_objects_outside_of_the_configured_range_are_not_delivered(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.server.add("customers", [shop.server.now - 50 * DAY] * 3)
        shop.server.arrive("customers", 5)
        shop.wait()
        shop.write("time_range: {from: 2026-01-01}")
        shop.run()
        shop.server.alter("customers", name(1), amount=-1)
        shop.server.alter("customers", name(4), amount=-2)
        shop.run()
        assert shop.rows() == [each for each in shop.expected() if each[0] > name(2)]


def test_a_key_that_may_not_read_events_is_refused(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 5)
        shop.wait()
        shop.server.change("events", status=403)
        done = shop.command.run("run", "stripe.yaml")
        assert done.code == 2
        assert "the key may not read Stripe's events, which `live` applies" in done.err


def test_a_feed_without_the_servers_time_fails(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database, date="absent") as shop:
        shop.write(HARD)
        shop.server.arrive("customers", 5)
        done = shop.command.run("run", "stripe.yaml")
        assert done.code == 1
        assert "has no header `Date`" in done.err


def test_a_time_limit_ends_the_reading_of_the_feed(database: str, tmp_path: Path) -> None:
    with StripeShop.open(tmp_path, database) as shop:
        shop.write()
        shop.server.arrive("customers", 10)
        shop.wait()
        shop.run()
        for number in range(900):
            shop.server.alter("customers", name(number % 10), amount=number)
        shop.wait()
        shop.server.set_faults(latency=1.5)
        done = shop.run("--time-limit", "6s")
        eof = done.messages[-1]
        assert (eof["status"], eof["has_more"], eof["reason"]) == ("limited", True, "stopped at time_limit 6 s")
        assert "the run's time was over" in lines(done)
        shop.server.set_faults()
        shop.run()
        assert shop.rows() == shop.expected()
