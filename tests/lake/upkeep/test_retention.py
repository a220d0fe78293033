"""Retention: whole files from the old end, never past the slowest reader unless forced, and the floor with them."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.lake.upkeep.upkeep_tables import UpkeepTable

from penstock.core.messages import StreamStatus
from penstock.errors import InputError, StreamFailed
from penstock.lake import head_times, parquet, readers, tables
from penstock.lake.tables import LostRace
from penstock.lake.upkeep import retention
from penstock.lake.upkeep.inventory import take_inventory
from penstock.lake.upkeep.retention import retain
from penstock.lake.upkeep.run import _record_head, run_upkeep
from penstock.sinks.lake import StreamOptions

Make = Callable[..., UpkeepTable]
ALL: dict[str, Any] = {"retention": {"age": "0s"}}
SOON = timedelta(minutes=1)


def soon() -> datetime:
    return datetime.now(UTC) + SOON


def keys(lake: UpkeepTable) -> list[int]:
    return [row[1] for row in lake.rows_in()]


def numbers(lake: UpkeepTable) -> list[int]:
    return [row[3] for row in lake.rows_in()]


def test_without_it_nothing_goes(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2)
    assert retain(lake.work()) == []


def test_rows_older_than_the_age_go_and_the_floor_says_so(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3)
    last = numbers(lake)[-1]
    _record_head(lake.work(now=datetime.now(UTC)))
    between = datetime.now(UTC)
    lake.land(4, 5)
    (done,) = retain(lake.work(now=between + timedelta(days=7), retention={"age": "7d"}))
    assert keys(lake) == [4, 5]
    assert lake.state.floor == last
    assert done.facts["rows"] == 3
    main = lake.state.main
    assert main is not None
    assert main.kind == "retention"
    assert lake.state.orderly
    lake.land(6)
    assert keys(lake) == [4, 5, 6]


def test_a_full_disk_is_said_to_be_full(kept: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the commit of a step, and before it."""
    lake = kept()
    lake.land(1, 2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((parquet, "sync"), (retention, "plan_retention")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, full)
            done = list(run_upkeep(lake.work(now=soon(), **ALL), ("retention",)))[-1]
        assert "s: no space left for file://" in done.text
        assert isinstance(done.error, StreamFailed)
        assert done.error.next_step == "free some space and run the upkeep again"
    assert keys(lake) == [1, 2]
    retain(lake.work(now=soon(), **ALL))
    assert keys(lake) == []


def test_the_age_is_known_beyond_expired_snapshots(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2)
    between = datetime.now(UTC)
    lake.land(3, 4)
    options: dict[str, Any] = {"snapshots": {"keep_for": "0s", "keep_at_least": 1}}
    list(run_upkeep(lake.work(now=soon(), **options), ("expiry",)))
    assert len(lake.state.snapshots) == 1
    retain(lake.work(now=between + timedelta(days=7), retention={"age": "7d"}))
    assert keys(lake) == [3, 4]


def test_size(kept: Make) -> None:
    lake = kept()
    lake.land(*range(6))
    sizes = [entry.bytes for entry in sorted(take_inventory(lake.table).entries, key=lambda entry: entry.bounds)]
    (done,) = retain(lake.work(retention={"size": sum(sizes[-2:])}))
    assert keys(lake) == [4, 5]
    assert done.facts["files"] == 4
    (done,) = retain(lake.work(retention={"size": sum(sizes[-2:])}))
    assert done.text.startswith("nothing to remove (size ")


def test_it_never_passes_the_slowest_reader(kept: Make) -> None:
    lake = kept()
    lake.land(*range(6))
    assert lake.read("slow", most=3).exit_code == 0
    assert lake.read("quick").exit_code == 0
    mark = numbers(lake)[2]
    lake.land(6)
    assert lake.read("quick").exit_code == 0
    reader = lake.state.slowest()
    assert reader is not None
    assert (reader.pipeline, reader.mark) == ("slow", mark)

    (done,) = retain(lake.work(now=soon(), **ALL))

    assert keys(lake) == [3, 4, 5, 6]
    assert f"held back: slow/s has read up to {mark}" in done.text
    assert done.facts["held_by"] == "slow/s"
    assert lake.read("slow").exit_code == 0
    assert [row["key"] for row in lake.seen("slow")] == list(range(7))


def test_force_counts_what_each_reader_loses_and_the_reader_stops(kept: Make) -> None:
    lake = kept()
    lake.land(*range(5))
    lake.land(*range(5, 25), most=20)
    lake.read("one", most=2)
    lake.read("two", most=4)
    marks = {reader.pipeline: reader.mark for reader in lake.state.readers()}
    below = {name: sum(1 for number in numbers(lake) if number > mark) for name, mark in marks.items()}
    assert below == {"one": 23, "two": 21}

    (done,) = retain(lake.work(now=soon(), force=True, **ALL))

    assert keys(lake) == []
    assert done.facts["losses"] == {"one/s": 23, "two/s": 21}
    assert f"one/s (at {marks['one']}) loses 23 rows" in done.text
    assert {reader.pipeline: reader.lost for reader in lake.state.readers()} == {"one": 23, "two": 21}
    assert lake.read("one").exit_code == 1
    (stopped,) = [m for m in lake.said if isinstance(m, StreamStatus) and m.reason]
    assert "were removed by retention before this reader had seen them" in str(stopped.reason)
    assert f"--to {lake.state.floor}" in str(stopped.next_step)


def test_losses_are_exact_inside_of_a_file(kept: Make) -> None:
    lake = kept()
    lake.land(*range(30), most=30)
    assert len(take_inventory(lake.table).entries) == 1
    lake.read("slow", most=11)
    (done,) = retain(lake.work(now=soon(), force=True, **ALL))
    assert done.facts["losses"] == {"slow/s": 19}


def test_an_abandoned_reader_holds_nothing_back(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3)
    lake.read("gone", most=1)
    lake.read("gone", most=1)
    with pytest.raises(InputError, match="has no reader"):
        readers.abandon(lake.lake, "s", "other", "s")
    assert retain(lake.work(now=soon(), **ALL))[0].facts["held_by"] == "gone/s"
    readers.abandon(lake.lake, "s", "gone", "s")
    (done,) = retain(lake.work(now=soon(), **ALL))
    assert keys(lake) == []
    assert done.facts["held_by"] is None
    assert "abandoned) loses" in done.text
    assert lake.read("gone").exit_code == 1


def test_a_file_that_straddles_stays_whole(kept: Make) -> None:
    lake = kept()
    lake.land(*range(30), most=30)
    lake.read("slow", most=11)
    lake.read("slow", most=1)
    (done,) = retain(lake.work(now=soon(), **ALL))
    assert len(keys(lake)) == 30
    assert lake.state.floor == 0
    assert done.text.startswith("nothing to remove")


def test_a_reader_that_registers_meanwhile_is_not_passed(kept: Make) -> None:
    """Registering adds a snapshot, so the retention under way loses its race and looks again."""
    lake = kept()
    lake.land(1, 2, 3)
    tried: list[int] = []

    def planned(*args: Any) -> Any:
        plan = original(*args)
        if not tried:
            tried.append(plan.floor)
            readers.register(lake.lake, "s", "new", "s", 0)
        return plan

    original = retention.plan_retention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "plan_retention", planned)
        retain(lake.work(now=soon(), **ALL))
    assert tried[0] > 0
    assert len(keys(lake)) == 3
    assert lake.state.floor == 0


def test_lost_races_end_with_the_turn(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2)
    lost: list[bool] = []
    original = tables.commit_snapshot

    def commit(*args: Any, **kwargs: Any) -> Any:
        if len(lost) < 3:
            lost.append(lake.state.turn() is not None)
            raise LostRace("someone")
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "commit_snapshot", commit)
        retain(lake.work(now=soon(), **ALL))
    assert lost == [False, False, True]
    assert keys(lake) == []
    assert lake.state.turn() is None


def test_a_keyed_table_has_no_retention(kept: Make) -> None:
    lake = kept(stream=StreamOptions(mode="merge", key=("key",)))
    lake.land(1)
    (done,) = retain(lake.work(now=soon(), **ALL))
    assert done.text.startswith("does not apply")
    assert keys(lake) == [1]


def test_times_are_thinned_and_never_too_young() -> None:
    many = [(at, at * 10) for at in range(1000)]
    kept_ones = head_times.thin(many, most=20)
    assert len(kept_ones) == 20
    assert (kept_ones[0], kept_ones[-1]) == (many[0], many[-1])
    for at in range(1000):
        moment = datetime.fromtimestamp(at / 1000, UTC)
        assert head_times.head_at(kept_ones, moment) <= at * 10


def test_times_are_noted_once(kept: Make) -> None:
    lake = kept()
    lake.land(1)
    _record_head(lake.work())
    noted = lake.state.properties[head_times.HEAD_TIMES]
    assert [head for _, head in json.loads(noted)] == [lake.state.head]
    _record_head(lake.work(now=soon()))
    assert lake.state.properties[head_times.HEAD_TIMES] == noted
