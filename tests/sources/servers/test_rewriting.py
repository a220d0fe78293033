"""Tables that are rewritten while a part waits for them: an older snapshot would see none of their rows."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import psycopg
import pytest
from tests.sources.servers.machines import until
from tests.sources.servers.slices import ids, planned
from tests.sources.tables import execute, source

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE VIEW seen AS SELECT * FROM parted;
INSERT INTO plain SELECT generate_series(1, 10);
INSERT INTO parted SELECT generate_series(1, 10);
"""


@pytest.mark.parametrize(
    ("stream", "rewritten", "options"),
    [
        ("plain", "plain", {"cursor": "id", "unique": True}),
        ("parted", "parted_1", {"cursor": "id", "unique": True}),
        ("plain", "plain", {}),
        ("parted", "parted_1", {}),
        ("seen", "parted_1", {}),
    ],
)
def test_every_row_is_read(database: str, stream: str, rewritten: str, options: dict[str, object]) -> None:
    execute(database, TABLES)
    origin = source(database, {stream: options})
    slice_ = planned(origin, stream)
    found: list[Sequence[int]] = []
    with psycopg.connect(database) as other:
        other.execute(f"ALTER TABLE {rewritten} SET UNLOGGED".encode())
        reading = threading.Thread(target=lambda: found.append(ids(origin, slice_)))
        reading.start()
        waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = '{}'::regclass"
        until(database, waits.format(rewritten))
        other.commit()
        reading.join()
    assert found == [[*range(1, 11)]]
