"""Upkeep of a warehouse on a real S3 server, as far as it needs no JVM: listing, expiry, retention, orphans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.harness.doubles import LoopMover
from tests.lake.lake_runs import World, rows
from tests.s3 import S3Server

from penstock.lake import names
from penstock.lake.tables import load_table
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.lake.upkeep.orphans import _list_files
from penstock.lake.upkeep.run import run_upkeep
from penstock.ports import NoProbe, NoSpark


def test_states_rows_and_orphans_go(s3_server: S3Server, tmp_path: Path) -> None:
    at = s3_server.bucket("kept")
    catalog = {"uri": "catalog.db", "properties": dict(s3_server.properties)}
    world, found = World(tmp_path, {"warehouse": f"{at}/tables", "catalog": catalog}), rows(1, 2)
    world.land(found)
    found.arrive(3)
    world.land(found)
    place = world.lake
    table = load_table(place, "s")
    assert table is not None
    pipeline, stream = next(iter(_standing(world).links()))
    folder = f"{table.location()}/data"
    left = f"{folder}/{names.file_stem(pipeline, stream, 1, 'a9')}-0-0-x.parquet"
    coming = f"{folder}/{names.file_stem(pipeline, stream, 99, 'a9')}-0-0-x.parquet"
    for path in (left, coming):
        with table.io.new_output(path).create() as file:
            file.write(b"x")
    options: dict[str, Any] = {"snapshots": {"keep_for": "0s", "keep_at_least": 1}, "retention": {"size": 1}}
    work = UpkeepJob(
        lake=place,
        table="s",
        options=UpkeepOptions.model_validate(options),
        spark=NoSpark(),
        mover=LoopMover,
        probe=NoProbe(),
        now=datetime.now(UTC) + timedelta(minutes=1),
    )
    before = {each.path for each in _list_files(work, table.location())}
    assert {left, coming} <= before

    done = {each.step: each for each in run_upkeep(work, ("retention", "expiry", "orphans"))}

    assert all(each.error is None for each in done.values())
    assert done["retention"].facts["rows"] == 3
    assert done["expiry"].facts["files_removed"] > 0
    after = {each.path for each in _list_files(work, table.location())}
    assert left not in after
    assert coming in after
    assert not any(path.endswith(".parquet") for path in after - {coming})
    assert len(_standing(world).snapshots) == 1


def _standing(world: World) -> Any:
    from penstock.lake.metadata import read_state

    return read_state(world.lake, "s")
