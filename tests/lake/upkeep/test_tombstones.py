"""Tombstones of a keyed table: forgotten once every reader has seen them, on real Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.lake.upkeep.upkeep_tables import GONE, UpkeepTable

from penstock.core.messages import StreamStatus
from penstock.lake import names, readers
from penstock.lake.upkeep import job, tombstones
from penstock.lake.upkeep.tombstones import purge
from penstock.ports import NoSpark
from penstock.sinks.lake import StreamOptions

# Spark's Python leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Make = Callable[..., UpkeepTable]
MERGE = StreamOptions(mode="merge", key=("key",))
NOW: dict[str, Any] = {"tombstones": {"age": "0s"}}


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=1)


def dead(lake: UpkeepTable) -> list[int]:
    found = lake.table.scan(row_filter=f"{names.DELETED} = true").to_arrow()
    keys: list[int] = sorted(found["key"].to_pylist())
    return keys


def test_a_log_keeps_its_deletes_and_none_due_starts_no_jvm(kept: Make) -> None:
    log = kept(spark=NoSpark())
    log.land(1, 2)
    log.land(1, version=GONE)
    assert purge(log.work(now=soon(), **NOW)) == []
    assert len(log.rows_in()) == 3
    keyed = kept(spark=NoSpark(), stream=MERGE)
    keyed.land(1)
    (done,) = purge(keyed.work(now=soon(), **NOW))
    assert done.text == "none older than 0s to remove"


def test_they_go_with_age_and_the_rest_stays(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark, stream=MERGE)
    lake.land(*range(6))
    lake.land(1, 2, version=GONE)
    rows = lake.rows_in()
    between = datetime.now(UTC)
    lake.land(3, version=GONE)
    assert dead(lake) == [1, 2, 3]
    (young,) = purge(lake.work(now=between + timedelta(days=6)))
    assert young.facts["tombstones"] == 0
    (told,) = purge(lake.work(now=between + timedelta(days=7), dry_run=True))
    assert told.text == "would remove 2 tombstones older than 7d"

    (done,) = purge(lake.work(now=between + timedelta(days=7)))

    assert done.text == "removed 2 tombstones older than 7d"
    assert dead(lake) == [3]
    assert {row[1] for row in lake.rows_in()} == {0, 3, 4, 5}
    assert [row for row in lake.rows_in() if row[1] != 3] == [row for row in rows if row[1] in (0, 4, 5)]
    state = lake.state
    assert state.main is not None
    assert state.main.kind == "purge"
    assert state.orderly
    assert state.turn() is None
    assert set(state.branches) == {"main"}
    assert state.floor == max(row[3] for row in rows if row[1] in (1, 2)), "the last tombstone that is gone"
    assert lake.land(7).exit_code == 0
    # One that begins anew reads current rows, below purged numbers too, over several slices.
    for _ in range(8):
        assert lake.read("new", most=1).exit_code == 0
    assert [row["key"] for row in lake.seen("new") if row.get("_change", "upsert") == "upsert"] != []
    assert {row["key"] for row in lake.seen("new")} == {0, 3, 4, 5, 7}


def test_the_slowest_reader_holds_them(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark, stream=MERGE)
    lake.land(1, 2, 3)
    lake.read("slow", most=3)
    lake.land(1, version=GONE)
    lake.read("slow", most=1)
    lake.land(2, version=GONE)
    lake.land(3, version=GONE)
    lake.read("slow", most=1)
    mark = next(reader.mark for reader in lake.state.readers())
    (done,) = purge(lake.work(now=soon(), **NOW))
    assert dead(lake) == [3], "it has read the other two"
    assert f"held back: slow/s has read up to {mark}" in done.text
    assert lake.read("slow").exit_code == 0


def test_one_who_was_passed_stops_and_is_told(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark, stream=MERGE)
    lake.land(1, 2, 3)
    lake.read("slow", most=3)
    lake.land(1, 2, version=GONE)
    assert purge(lake.work(now=soon(), **NOW))[0].facts["tombstones"] == 0
    (done,) = purge(lake.work(now=soon(), force=True, **NOW))
    assert "slow/s" in done.text
    assert "loses 2 rows" in done.text
    assert dead(lake) == []
    assert lake.read("slow").exit_code == 1
    (stopped,) = [m for m in lake.said if isinstance(m, StreamStatus) and m.reason]
    assert "2 deletes in" in str(stopped.reason)
    assert "state reset" in str(stopped.next_step)


def test_no_one_goes_back_below_them(kept: Make, spark: Any) -> None:
    """What comes again from there would be the rows that are left, and no delete: the target would keep the others."""
    lake = kept(spark=spark, stream=MERGE)
    lake.land(*range(4))
    lake.read("back")
    before = next(reader.mark for reader in lake.state.readers())
    lake.land(0, 1, 2, version=GONE)
    lake.read("back")
    purge(lake.work(now=soon(), **NOW))
    floor = lake.state.floor
    assert floor == next(reader.mark for reader in lake.state.readers()) > before

    assert lake.lead("back", lambda engine: engine.rewind(["s"], str(before))).exit_code == 2
    assert "were purged" in reason(lake)
    assert lake.read("number", **{"from": before}).exit_code == 2
    assert "were purged" in reason(lake)

    assert lake.lead("back", lambda engine: engine.undo(["s"])).exit_code == 1
    assert f"deletes in {lake.name}.s with numbers from {before + 1} to {floor} were purged" in reason(lake)
    (stopped,) = [m for m in lake.said if isinstance(m, StreamStatus) and m.reason]
    assert "state reset" in str(stopped.next_step)
    assert f"rewind FILE --to {floor}" in str(stopped.next_step)

    assert lake.read("back").exit_code == 0, "the mark has not moved"
    assert lake.lead("back", lambda engine: engine.reset(["s"])).exit_code == 0
    assert lake.read("back").exit_code == 0
    assert lake.seen("back")[-1]["key"] == 3


def reason(lake: UpkeepTable) -> str:
    return " ".join(str(m.reason) for m in lake.said if isinstance(m, StreamStatus) and m.reason)


def test_one_who_registers_meanwhile_is_not_passed(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark, stream=MERGE)
    lake.land(1, 2)
    lake.land(1, version=GONE)

    class Meanwhile:
        began = False

        def at(self, point: str, **about: object) -> None:
            if point == "lake.purge_prepared" and not self.began:
                self.began = True
                readers.register(lake.lake, "s", "new", "s", 1)

    probe = Meanwhile()
    (done,) = purge(lake.work(now=soon(), probe=probe, **NOW))
    assert probe.began
    assert done.facts["tombstones"] == 0
    assert dead(lake) == [1]
    assert set(lake.state.branches) == {"main"}


def test_a_landing_meanwhile_waits_and_none_is_lost(kept: Make, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    lake = kept(spark=spark, stream=MERGE)
    lake.land(1, 2)
    lake.land(1, version=GONE)
    codes: list[int] = []
    writer = threading.Thread(target=lambda: codes.append(lake.land(9, version=5).exit_code))
    original = job.run_procedure

    def slowly(*args: Any) -> Any:
        writer.start()
        writer.join(2)
        return original(*args)

    monkeypatch.setattr(tombstones, "run_procedure", slowly)
    purge(lake.work(now=soon(), **NOW))
    writer.join()
    assert codes == [0]
    assert dead(lake) == []
    assert {row[1]: row[2] for row in lake.rows_in()} == {2: 0, 9: 5}
