"""A lake table that is not what its reader read: what `check` says, what `run` does, and the way out.

For a log and for a merged table. `check` and `run` end with the same code, and nothing is passed over without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform

from penstock import wiring
from penstock.links.spark import SparkSessionProvider
from tests.acceptance.what_was_there import leave_open, penstock
from tests.harness.doubles import LoopMover
from tests.lake.compaction import compact
from tests.sources.lake.lakes import LakeWorld, orders

FILE = """\
pipelines:
  export:
    source: {{type: lake, warehouse: "{warehouse}", namespace: {namespace}}}
    sink: {{type: files, directory: out, format: ndjson}}
    streams: {{orders: {{{stream}}}}}
"""
MODES: dict[str, tuple[str, ...]] = {"log": (), "merged": ("id",)}
#: of its own for each test, since all of them share a lake
_numbers = count(1)


@dataclass
class Export:
    """A lake with orders, and a pipeline that delivers them into files."""

    lake: LakeWorld
    key: tuple[str, ...]

    def write(self, stream: str = "") -> None:
        text = FILE.format(warehouse=self.lake.lake.warehouse, namespace=self.lake.namespace, stream=stream)
        Path("export.yaml").write_text(text)

    def land(self, first: int, last: int) -> None:
        self.lake.land(orders(first, last), key=self.key)

    @property
    def name(self) -> tuple[str, str]:
        return self.lake.namespace, "orders"

    def delivered(self) -> list[int]:
        lines = [line for file in Path("out/orders").glob("*.ndjson") for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["id"] for line in lines)

    def goes(self) -> tuple[str, str]:
        """`check` and `run` end with 0; what each said."""
        return said_by("check", 0), said_by("run", 0)

    def refused(self, *words: str, code: int) -> str:
        """`check`, `plan` and `run` say so and end with the code, and nothing was delivered; what `run` said."""
        before = self.delivered()
        for verb in ("check", "plan", "run"):
            said = said_by(verb, code)
            for each in words:
                assert each in said, (verb, said)
        assert self.delivered() == before
        return said


def said_by(verb: str, code: int) -> str:
    ended, said = penstock(verb, "export.yaml")
    assert ended == code, (verb, said)
    return said


def follow(said: str, command: str, **given: str) -> None:
    """Run a command that the message names."""
    found = re.search(rf"`penstock ({command} export\.yaml[^`]*)`", said)
    assert found, said
    words = [given.get(word, word) for word in found[1].split()]
    ended, answer = penstock(*words, "--yes")
    assert ended == 0, answer


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One lake for all: a session cannot move to another catalog."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(params=MODES)
def synced(
    warehouse: Path,
    spark_provider: SparkSessionProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Export:
    """Ten orders in two landings, all delivered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    lake = LakeWorld(warehouse, namespace=f"shop{next(_numbers)}", spark=spark_provider)
    export = Export(lake, MODES[request.param])
    export.land(1, 5)
    export.land(6, 10)
    export.write()
    export.goes()
    assert export.delivered() == list(range(1, 11))
    return export


def test_truncated(synced: Export) -> None:
    """Deletes of others are not delivered: `check` says so before `run` does, and new rows come."""
    synced.lake.delete("id > 0")
    for said in synced.goes():
        assert "it removed 10 and wrote 0 of them again" in said
        assert "readers do not get these changes" in said
    synced.land(11, 15)
    synced.goes()
    assert synced.delivered() == list(range(1, 16))


def test_replaced(synced: Export) -> None:
    synced.lake.catalog().drop_table(synced.name)
    synced.lake._last.clear()
    synced.land(11, 13)
    follow(synced.refused("it was dropped and created again, or replaced", code=2), "state reset")
    synced.goes()
    assert synced.delivered() == list(range(1, 14))


def test_replaced_by_a_table_of_others(synced: Export) -> None:
    synced.lake.catalog().drop_table(synced.name)
    synced.lake.make(orders(1, 1))
    synced.lake.append(orders(11, 13))
    synced.refused("was not created by penstock", "`adopt: true`", code=2)
    synced.write("adopt: true")
    follow(synced.refused("it was dropped and created again, or replaced", code=2), "state reset")
    synced.goes()
    assert synced.delivered() == list(range(1, 14))


def test_renamed(synced: Export) -> None:
    catalog = synced.lake.catalog()
    catalog.rename_table(synced.name, (synced.lake.namespace, "moved"))
    synced.refused(f"there is no table {synced.lake.namespace}.orders", "`table` on the stream", code=2)
    synced.write("table: moved")
    synced.goes()
    assert synced.delivered() == list(range(1, 11)), "its marks are in it: nothing comes twice"
    catalog.rename_table((synced.lake.namespace, "moved"), synced.name)
    synced.write()
    synced.land(11, 13)
    synced.goes()
    assert synced.delivered() == list(range(1, 14))


def test_repartitioned(synced: Export) -> None:
    with synced.lake.table().update_spec() as change:
        change.add_field("id", BucketTransform(4), "bucket")
    synced.goes()
    synced.land(11, 13)
    synced.goes()
    assert synced.delivered() == list(range(1, 14))


def test_repartitioned_after_others_have_written(synced: Export) -> None:
    """Their rows cannot be numbered where they are."""
    synced.lake.append(orders(11, 13, _ingest_seq=pa.array([0, 0, 0], pa.int64())))
    with synced.lake.table().update_spec() as change:
        change.add_field("id", BucketTransform(4), "bucket")
    said = said_by("check", 1)
    assert "which was written under an older partitioning of the table" in said
    assert "call system.rewrite_data_files" in said_by("run", 1)
    assert synced.delivered() == list(range(1, 11))


def test_rolled_back(synced: Export) -> None:
    table = synced.lake.table()
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    said = synced.refused("was rolled back to a snapshot before the one that was read", code=1)
    head = synced.lake.state().head
    follow(said, "rewind", NUMBER=str(head))
    synced.goes()
    assert synced.delivered() == list(range(1, 11))


@pytest.fixture
def restored(synced: Export) -> Callable[[], None]:
    """Puts the catalog back as it is now, whatever happens in between."""
    path = Path(synced.lake.lake.uri)
    copy, landed = path.read_bytes(), dict(synced.lake._last)

    def restore() -> None:
        path.write_bytes(copy)
        synced.lake._last.update(landed)

    return restore


def test_a_catalog_restored_from_an_older_copy(synced: Export, restored: Callable[[], None]) -> None:
    synced.land(11, 13)
    synced.goes()
    restored()
    said = synced.refused("is behind this reader", "restored from an older copy", code=1)
    follow(said, "rewind")
    synced.goes()
    assert synced.delivered() == list(range(1, 14))
    synced.land(11, 15)
    synced.goes()
    assert synced.delivered() == sorted([*range(1, 14), *range(11, 16)]), "as the message says"


def test_a_catalog_restored_while_a_slice_is_open(synced: Export, restored: Callable[[], None]) -> None:
    synced.land(11, 13)
    leave_open("export.yaml")
    restored()
    follow(synced.refused("is behind this reader", code=1), "state recover")
    synced.goes()
    synced.land(11, 15)
    synced.goes()
    assert synced.delivered() == list(range(1, 16))


def test_replaced_while_a_slice_is_open(synced: Export) -> None:
    synced.land(11, 13)
    leave_open("export.yaml")
    synced.lake.catalog().drop_table(synced.name)
    synced.lake._last.clear()
    synced.land(21, 23)
    said = synced.refused("it was dropped and created again, or replaced", code=2)
    follow(said, "state recover")
    follow(said, "state reset")
    synced.goes()
    assert synced.delivered() == sorted([*range(1, 11), *range(21, 24)])


def test_others_wrote_compacted_and_expired(synced: Export) -> None:
    """Nobody knows any more which rows they brought, whether or not a slice is open."""
    synced.land(11, 13)
    leave_open("export.yaml")
    synced.lake.append(orders(101, 103, _ingest_seq=pa.array([1, 2, 3], pa.int64())))
    compact(synced.lake.table())
    table = synced.lake.table()
    gone = [each.snapshot_id for each in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    said = synced.refused("expired before penstock could see which rows they brought", code=1)
    follow(said, "upkeep")
    synced.goes()
    assert set(synced.delivered()) >= set(range(1, 14))


JDBC = """\
pipelines:
  {name}:
    source: {source}
    sink: {sink}
    streams: {{orders: {stream}}}
"""


def test_lost_a_grant_on_the_catalog(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's role may no longer read the catalog, or only that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    role = "lake_reader"

    def place(uri: str) -> str:
        return f'{{type: lake, warehouse: "{tmp_path}/tables", namespace: shop, catalog: {{type: jdbc, uri: "{uri}"}}}}'

    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
        db.execute("INSERT INTO orders SELECT generate_series(1, 10)")
        source = f'{{type: postgres, url: "{database}"}}'
        Path("shop.yaml").write_text(
            JDBC.format(name="shop", source=source, sink=place(database), stream="{cursor: id, unique: true}")
        )
        assert penstock("run", "shop.yaml")[0] == 0
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'penstock'; GRANT ALL ON iceberg_tables TO {role}".encode())
        db.execute(f"GRANT ALL ON iceberg_namespace_properties TO {role}".encode())
        url = database.replace("penstock:penstock@", f"{role}:penstock@")
        files = "{type: files, directory: out, format: ndjson}"
        Path("export.yaml").write_text(JDBC.format(name="export", source=place(url), sink=files, stream="{}"))
        try:
            assert said_by("run", 0)
            db.execute(f"REVOKE ALL ON iceberg_tables FROM {role}".encode())
            db.execute("INSERT INTO orders SELECT generate_series(11, 13)")
            assert penstock("run", "shop.yaml")[0] == 0
            for verb in ("check", "plan", "run"):
                assert "permission denied for table iceberg_tables" in said_by(verb, 3)
            db.execute(f"GRANT SELECT ON iceberg_tables TO {role}".encode())
            assert "permission denied for table iceberg_tables" in penstock("run", "export.yaml")[1]
            db.execute(f"GRANT ALL ON iceberg_tables TO {role}".encode())
            assert said_by("run", 0)
        finally:
            db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
    lines = [line for file in Path("out/orders").glob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(1, 14))
