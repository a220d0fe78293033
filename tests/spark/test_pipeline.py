"""From Postgres to files through the wiring, on a real Spark."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow.dataset as ds
import pytest

from penstock import wiring
from penstock.core.messages import Eof, Message, MoverStatus, StepDone
from tests.shared_jvm import jvms_of

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILE = """
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    slice_bytes: 65536
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""
ROWS = 3000


def java() -> list[int]:
    return jvms_of(os.getpid())


def test_postgres_to_files(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "shop.yaml").write_text(FILE)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(12, 2), note text, updated_at timestamptz);"
            "CREATE INDEX ON orders (updated_at, id)"
        )
        db.execute(
            "INSERT INTO orders SELECT g, g / 100.0, md5(g::text), timestamptz '2026-01-01Z' + g / 7 * interval '1 h'"
            f" FROM generate_series(1, {ROWS}) g"
        )
        db.execute("ANALYZE orders")
    first, said = run(tmp_path)
    assert (first.exit_code, first.has_more, first.request_progress["rows"]) == (0, False, ROWS), first.reason
    assert len([message for message in said if isinstance(message, StepDone) and message.step == "commit"]) > 1
    # The start of Spark is said, and its end, before a row has moved.
    starts = [message for message in said if isinstance(message, MoverStatus)]
    assert [(message.program, message.ready) for message in starts] == [("Spark", False), ("Spark", True)]
    moved = next(m for m in said if isinstance(m, StepDone) and m.step == "move")
    assert said.index(starts[0]) < said.index(starts[1]) < said.index(moved)
    seen = ds.dataset(tmp_path / "out" / "orders").to_table().to_pylist()
    assert sorted(row["id"] for row in seen) == list(range(1, ROWS + 1))
    assert {row["id"]: row["amount"] for row in seen}[1234] == Decimal("12.34")
    assert java() == []
    assert list(tmp_path.glob("penstock-spark-*")) == []
    # Nothing new: the answer comes without a JVM.
    monkeypatch.setattr(wiring, "make_mover", lambda _: pytest.fail("nothing is to be moved"))
    again, _ = run(tmp_path)
    assert (again.exit_code, again.request_progress["rows"]) == (0, 0)


def run(folder: Path) -> tuple[Eof, list[Message]]:
    file = wiring.load(str(folder / "shop.yaml"))
    said: list[Message] = []
    with closing(wiring.open_store(file)) as store:
        return wiring.assemble(file, "shop", store=store, emit=said.append).run(), said
