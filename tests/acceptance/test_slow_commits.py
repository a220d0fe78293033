"""SIGINT while a commit waits or works for minutes: the run ends soon, and the next one delivers exactly once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from penstock.lake.lake import Lake
from penstock.lake.landing import remove_turn, take_turn
from penstock.lake.options import LakeOptions
from penstock.lake.tables import extract_state, load_table
from tests.acceptance import test_lake_kill as lake
from tests.acceptance.postgres_shop import MODES, check, count, open_shop
from tests.harness.faults import Running

#: from the signal to the end of the process; a commit would take minutes
END_SECONDS = 10.0
#: a write of one row takes longer than any test
SLOW = """
CREATE FUNCTION copies.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON copies.orders FOR EACH ROW EXECUTE FUNCTION copies.sleep();
"""
#: a statement of the merge that waits for a lock, or sleeps
BUSY = """
SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%"copies"."orders"%' AND pid <> pg_backend_pid()
AND (wait_event_type = 'Lock' OR wait_event = 'PgSleep')
"""


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def interrupt(running: Running) -> list[dict[str, object]]:
    """SIGINT; what the command said, in JSON, until it ended soon after."""
    begun = time.monotonic()
    running.signal(signal.SIGINT)
    stopped = running.end()
    assert stopped.code == 130, stopped.err
    assert time.monotonic() - begun < END_SECONDS
    assert (stopped.messages[-1]["status"], stopped.messages[-1]["has_more"]) == ("interrupted", True)
    return stopped.messages


@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("how", ["lock", "trigger"])
def test_a_slow_merge_is_cancelled(how: str, mode: str, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path, mode, lock_timeout=600)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace(MODES[mode], f"{MODES[mode]}, triggers: true"))
    assert shop.command.run("run", "shop.yaml").code == 0
    slices = count(database, "SELECT count(*) FROM penstock_sink.slices")
    shop.arrive(3001, 3500)
    with psycopg.connect(database) as other:
        if how == "lock":
            other.execute("LOCK TABLE copies.orders IN EXCLUSIVE MODE")
        else:
            other.execute(SLOW.encode())
            other.commit()
        running = shop.command.start("run", "shop.yaml", "--json")
        wait_until(lambda: bool(count(database, BUSY)))
        interrupt(running)
        # The server's side of it is over too, and nothing of the slice is visible.
        wait_until(lambda: not count(database, BUSY))
    assert count(database, "SELECT count(*) FROM penstock_sink.slices") == slices
    if how == "trigger":
        with psycopg.connect(database) as other:
            other.execute("DROP TRIGGER slow ON copies.orders")
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    check(database, mode, tmp_path)


def test_a_landing_that_waits_for_another_writer_ends(database: str, tmp_path: Path) -> None:
    shop = lake.open_shop(database, tmp_path)
    assert shop.command.run("run", "shop.yaml").code == 0
    place = Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="shop")
    table = load_table(place, "orders")
    assert table is not None
    take_turn(table, extract_state(table), "another", 3600)
    shop.arrive(3001, 3500)
    running = shop.command.start("run", "shop.yaml", "--json", point="gate.moved")
    running.reached()
    running.go()
    time.sleep(1.5)
    assert running.process.poll() is None
    interrupt(running)
    table = load_table(place, "orders")
    assert table is not None
    remove_turn(table)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    lake.check(shop, tmp_path)
