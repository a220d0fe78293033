"""A run with nothing new: no PyIceberg, no Arrow, no Spark, no data file, nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import noop
from tests.harness.doubles import FIND_TESTS
from tests.sources.lake.lakes import LakeWorld, orders
from tests.sources.lake.opened import opened

RUN = (
    FIND_TESTS
    + """
import json, sys
from penstock import wiring
from penstock.cli import main
from tests.harness.doubles import LoopMover
wiring.make_mover = lambda _house: LoopMover()
heavy = {"alembic", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "rich"}
sys.argv = ["penstock", "run", "out.yaml"]
try:
    main()
finally:
    print(json.dumps(sorted(heavy & sys.modules.keys())))
"""
)
FILE = """\
pipelines:
  out:
    source: {type: lake, namespace: shop}
    sink: %s
    streams:
      orders: {}
"""


def run(folder: Path) -> tuple[str, list[str], list[str]]:
    table = folder / "lake/shop/orders"
    with opened(table / "data") as data, opened(table / "metadata") as manifests:
        done = subprocess.run([sys.executable, "-c", RUN], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, last = done.stdout.rstrip().rsplit("\n", 1)
    return said, json.loads(last), data + manifests


def check(folder: Path) -> None:
    _, heavy, seen = run(folder)
    assert {"pyarrow", "pyiceberg"} <= set(heavy), "the first run needs them, so their absence below means something"
    assert {name.rpartition(".")[2] for name in seen} == {"parquet", "avro"}
    kept = [path for path in folder.iterdir() if path.name != ".penstock"]
    before = noop.tree(*kept), noop.store_rows(folder / ".penstock" / "store.db")
    said, heavy, seen = run(folder)
    assert "nothing new" in said
    assert (heavy, seen) == ([], [])
    assert (noop.tree(*kept), noop.store_rows(folder / ".penstock" / "store.db")) == before


def test_into_files(tmp_path: Path) -> None:
    LakeWorld(tmp_path).land(orders(1, 100))
    (tmp_path / "out.yaml").write_text(FILE % "{type: files, directory: out}")
    check(tmp_path)


def test_into_another_table(tmp_path: Path) -> None:
    LakeWorld(tmp_path).land(orders(1, 100))
    (tmp_path / "out.yaml").write_text(FILE % "{type: lake}")
    check(tmp_path)


def test_from_now_into_another_table(tmp_path: Path) -> None:
    """The first slice has no rows, and the table that holds it is not there yet."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 100))
    (tmp_path / "out.yaml").write_text((FILE % "{type: lake}").replace("{}", "{from: now}"))
    said, _, _ = run(tmp_path)
    assert "out/orders: starts here; mark: " in said
    assert "rewound" not in said
    lake.land(orders(101, 103))
    run(tmp_path)
    rows = lake.catalog().load_table("out.orders").scan().to_arrow()
    assert sorted(rows.column("id").to_pylist()) == [101, 102, 103]


def test_a_reader_that_has_read_everything_says_so_at_once(tmp_path: Path) -> None:
    """Retention would otherwise wait, at the mark before, until the next row comes."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 100))
    (tmp_path / "out.yaml").write_text(FILE % "{type: files, directory: out}")
    run(tmp_path)
    assert [reader.mark for reader in lake.state().readers()] == [lake.state().head]
