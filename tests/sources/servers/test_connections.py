"""How many connections a source holds at the same time, however many workers there are."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from tests.sources.servers.slices import planned
from tests.sources.tables import execute, rows, source

from penstock.ports import Budget

OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"


@pytest.mark.parametrize("options", [{"cursor": "id", "unique": True}, {}])
@pytest.mark.parametrize("connections", [1, 3])
def test_there_are_never_more_than_one_beside_those_that_read(
    database: str, options: dict[str, Any], connections: int
) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, wide text)",
        "ALTER TABLE t ALTER wide SET STORAGE PLAIN",
        "INSERT INTO t SELECT g, repeat('x', 4000) FROM generate_series(1, 7000) g",
        "ANALYZE t",
    )
    origin = source(database, {"t": options}, connections=connections)
    slice_ = planned(origin, "t", Budget(bytes=1 << 30, workers=8))
    with ExitStack() as opened:
        reading = opened.enter_context(origin.reading(slice_))
        batches = [opened.enter_context(reading.reader.open(part)) for part in reading.parts]
        first = [batch.read_next_batch().num_rows for batch in batches]
        [[held]] = rows(database, OURS)
        assert held <= connections + 1
        assert len(first) <= connections
        assert sum(first) + sum(batch.read_all().num_rows for batch in batches) == 7000
