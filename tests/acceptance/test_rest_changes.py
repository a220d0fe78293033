"""Objects of an API that change or are deleted: read again in a window, and right in keyed sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance.rest_shop import FILES, RestShop
from tests.harness.faults import Outcome

POSTGRES = '{type: postgres, url: "${DATABASE_URL}"}'
#: the ways to say how versions are ordered: by a field, or by the page's time
BY_FIELD = "changes: {updated: updated, deleted: gone, rescan: 1h}"
BY_PAGE = "changes: {deleted: gone, rescan: 1h}"


def stream(changes: str, more: str = "") -> dict[str, str]:
    return {"charges": f"{{time: {{lag: 0}}, columns: {{amount: int64}}, {changes}{', ' if more else ''}{more}}}"}


def run(shop: RestShop) -> Outcome:
    done = shop.command.run("run", "shop.yaml", "--json")
    assert done.code == 0, done.err
    return done


def table(url: str, columns: str = "id, amount") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(f"SELECT {columns} FROM charges ORDER BY id".encode()).fetchall()


def expected(shop: RestShop) -> list[tuple[str, int]]:
    return sorted((each["id"], each["amount"]) for each in shop.server.bodies("charges") if not each.get("gone"))


@pytest.mark.parametrize(
    ("changes", "deletes"), [(BY_FIELD, "hard"), (BY_PAGE, "hard"), (BY_FIELD, "soft")], ids=["field", "page", "soft"]
)
def test_changes_and_deletes_in_the_window_arrive(changes: str, deletes: str, database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        more = "deletes: soft, deleted_at: deleted_at" if deletes == "soft" else ""
        shop.write(stream(changes, more), sink=POSTGRES, slice_bytes=1 << 16)
        shop.server.arrive("charges", 700)
        run(shop)
        shop.server.set_clock(shop.server.now + 60)
        now = shop.server.now
        shop.server.alter("charges", "ch_00000003", amount=-1, updated=now)
        shop.server.alter("charges", "ch_00000600", gone=True, updated=now)
        shop.server.arrive("charges", 10)
        run(shop)
        rows = table(database) if deletes == "hard" else table_without_marked(database)
        assert rows == expected(shop)
        assert ("ch_00000003", -1) in rows
        # An object that is changed again, and one that comes back.
        shop.server.alter("charges", "ch_00000003", amount=-2, updated=shop.server.now)
        shop.server.alter("charges", "ch_00000600", gone=False, updated=shop.server.now)
        shop.server.set_clock(shop.server.now + 5)
        run(shop)
        rows = table(database) if deletes == "hard" else table_without_marked(database)
        assert rows == expected(shop)
        assert len(rows) == 710


def table_without_marked(url: str) -> list[tuple[Any, ...]]:
    return [(id_, amount) for id_, amount, at in table(url, "id, amount, deleted_at") if at is None]


def test_unchanged_objects_are_not_delivered_again_where_a_field_tells(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write(stream(BY_FIELD))
        shop.server.arrive("charges", 300)
        shop.server.set_clock(shop.server.now + 10)
        run(shop)
        shop.server.set_clock(shop.server.now + 100)
        shop.server.alter("charges", "ch_00000007", amount=-1, updated=shop.server.now - 50)
        done = run(shop)
        assert done.messages[-1]["request_progress"]["rows"] == 1
        assert [each["amount"] for each in shop.rows() if each["id"] == "ch_00000007"] == [7 * 7919 % 100_000, -1]
        # From now on there is nothing to deliver. Spark is not started to find that out.
        shop.server.set_clock(shop.server.now + 100)
        shop.command.mover = "spark"
        done = run(shop)
        assert done.messages[-1]["request_progress"]["rows"] == 0
        assert [each for each in done.messages if each["type"] == "mover_status"] == []


def test_only_the_window_is_read_again_and_not_more_often_than_configured(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        changes = "changes: {rescan: 1m, every: 1h}"
        shop.write(stream(changes))
        shop.server.arrive("charges", 600)  # three in a second
        run(shop)
        shop.server.set_clock(shop.server.now + 1800)
        shop.server.forget_requests()
        run(shop)
        assert len(shop.server.requests()) == 1
        shop.server.set_clock(shop.server.now + 1800)
        shop.server.add("charges", [shop.server.now - 30])
        shop.server.forget_requests()
        assert run(shop).messages[-1]["request_progress"]["rows"] == 2, (
            "the new object, and again what is in the window"
        )
        lows = {each["query"].get("created[gte]") for each in shop.server.requests()}
        assert str(shop.server.now - 60) in lows
        assert len(shop.rows()) == 602


def test_two_changes_in_one_second_with_a_reading_between_them(database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        shop.write(stream(BY_FIELD), sink=POSTGRES)
        shop.server.arrive("charges", 5)
        run(shop)
        shop.server.set_clock(shop.server.now + 10)
        second = shop.server.now
        shop.server.alter("charges", "ch_00000001", amount=-1, updated=second)
        run(shop)
        assert ("ch_00000001", -1) in table(database)
        shop.server.alter("charges", "ch_00000001", amount=-2, updated=second)
        shop.server.set_clock(second + 2)
        run(shop)
        assert ("ch_00000001", -2) in table(database)


@pytest.mark.parametrize("point", ["rest.page_spooled", "gate.intended", "gate.committed"])
def test_killed_while_objects_are_read_again(point: str, database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        shop.write(stream(BY_PAGE), sink=POSTGRES, slice_bytes=1 << 15)
        shop.server.arrive("charges", 400)
        run(shop)
        shop.server.set_clock(shop.server.now + 60)
        for number in (1, 150, 390):
            shop.server.alter("charges", f"ch_{number:08}", amount=-number)
        shop.command.kill_at(point, "run", "shop.yaml", nth=2)
        shop.server.set_clock(shop.server.now + 60)
        shop.server.alter("charges", "ch_00000150", gone=True)
        shop.server.alter("charges", "ch_00000001", amount=-1000)
        run(shop)
        if point != "rest.page_spooled":
            # The pages of the open rescan may be from before the last changes.
            shop.server.set_clock(shop.server.now + 60)
            run(shop)
        assert table(database) == expected(shop)


def test_a_sink_without_a_key_refuses_deletes(database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        shop.write(stream(BY_FIELD, "mode: append"), sink=POSTGRES)
        done = shop.command.run("check", "shop.yaml")
        assert done.code == 2
        assert "the stream delivers deletes, and without a key none of them can find its row" in done.out + done.err


def test_changes_without_a_time_are_refused(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write({"charges": "{changes: {rescan: 1h}}"}, sink=FILES)
        done = shop.command.run("check", "shop.yaml")
        assert done.code == 2
        assert "`changes` needs `time`" in done.out + done.err


def test_a_time_limit_ends_a_reading_that_finds_no_changes(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write(stream(BY_FIELD), slice_bytes=1 << 24)
        shop.server.arrive("charges", 3000)
        shop.server.set_clock(shop.server.now + 10)
        run(shop)
        shop.server.set_clock(shop.server.now + 60)
        shop.server.set_faults(latency=0.3)
        done = shop.command.run("run", "shop.yaml", "--time-limit", "1s", "--json")
        assert done.code == 0, done.err
        assert done.messages[-1]["has_more"]
        shown = shop.command.run("state", "show", "shop.yaml").out
        assert "to read again for changes" in " ".join(shown.split())
        # The next run goes on from there.
        shop.server.set_faults()
        shop.server.alter("charges", "ch_00000001", amount=-1, updated=shop.server.now)
        run(shop)
        assert {"id": "ch_00000001", "amount": -1}.items() <= shop.rows()[-1].items()


@pytest.mark.parametrize("sink", [POSTGRES, "{type: lake, warehouse: lake}"], ids=["postgres", "lake"])
def test_the_time_of_a_version_must_be_shipped_into_a_keyed_table(sink: str, database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        mode = "mode: upsert" if sink == POSTGRES else "mode: merge"
        shop.write(stream(BY_FIELD, f"{mode}, shape: {{drop: [_changed_at]}}"), sink=sink)
        done = shop.command.run("check", "shop.yaml")
        assert done.code == 2
        said = " ".join((done.out + done.err).split())
        assert "a row may arrive after a newer version of it" in said
        assert "which tells the newest, is not shipped" in said
