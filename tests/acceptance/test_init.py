"""`init` writes a file that `check` accepts and `run` syncs without an edit: a shop into files, pgbench into a lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from tests.acceptance.synced import file_tables, newest, rows_of, table_rows
from tests.harness.forking import nursery
from tests.harness.postgres import newest_programs

LENDING = Path(__file__).with_name("lending.sql")

#: what happens in the shop between two runs
CHANGES = """
UPDATE game SET title = 'Another game' WHERE game_id % 100 = 0;
INSERT INTO game (title, language_id) VALUES ('A new game', 1);
UPDATE customer SET email = NULL WHERE customer_id = 7;
INSERT INTO payment (customer_id, amount, paid_at, last_update) VALUES (1, 1.5, '2026-02-11Z', now());
INSERT INTO visit (at, page, agent) VALUES (now(), '/new', 'x');
DELETE FROM note WHERE text = 'note 1';
UPDATE city SET city = 'Elsewhere' WHERE city_id = 3;
INSERT INTO journal_old VALUES (2, 'late');
REFRESH MATERIALIZED VIEW paid_by_month;
"""


def command(folder: Path, *words: str, url: str | None) -> str:
    """A command that starts no Spark; rows that it moves go through a loop. What it printed."""
    forked = nursery().start([json.dumps({"mover": "loop"}), *words], folder, environment(url))
    out, err = forked.communicate(timeout=600)
    assert forked.returncode == 0, f"{words}: {out}{err}"
    return out


def run_on_spark(folder: Path, file: str, url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", file],
        cwd=folder,
        env=environment(url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def environment(url: str | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return kept | ({"DATABASE_URL": url} if url else {})


def execute(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(text.encode())


def pgbench(url: str, *words: str) -> None:
    at = urlsplit(url)
    program = str(newest_programs() / "pgbench")
    where = ["-h", str(at.hostname), "-p", str(at.port), "-U", str(at.username), at.path.removeprefix("/")]
    subprocess.run(
        [program, *words, *where], env=os.environ | {"PGPASSWORD": at.password or ""}, check=True, capture_output=True
    )


def document(folder: Path, *words: str, url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(folder, *words, "--json", url=url))
    return found


@pytest.fixture
def lending(database: str) -> str:
    execute(database, LENDING.read_text())
    return database


def test_a_lending_shop_is_synced_into_files_from_its_url_alone(lending: str, tmp_path: Path) -> None:
    said = command(tmp_path, "init", lending, "--views", "--pipeline", "lending", url=None)
    text = (tmp_path / "penstock.yaml").read_text()
    assert "penstock check penstock.yaml" in said
    assert "://" not in text + said
    checked = document(tmp_path, "check", "penstock.yaml", url=lending)
    [pipeline] = checked["pipelines"]
    offered = document(tmp_path, "discover", "penstock.yaml", url=lending)["streams"]
    assert len(offered) == len(pipeline["streams"]) == 24
    assert all(stream["problem"] is None and stream["skipped"] is None for stream in pipeline["streams"])
    onward = {stream["stream"] for stream in pipeline["streams"] if stream["kind"] == "rows"}
    assert onward == {"address", "customer", "game", "game_publisher", "loan", "payment", "visit"}

    run_on_spark(tmp_path, "penstock.yaml", lending)
    _must_agree(lending, tmp_path, pipeline["streams"])
    execute(lending, CHANGES)
    command(tmp_path, "run", "penstock.yaml", url=lending)
    _must_agree(lending, tmp_path, pipeline["streams"])


def _must_agree(url: str, folder: Path, streams: list[dict[str, Any]]) -> None:
    tables_by_stream = {"Odd_Name_yes": "Odd/Name. yes"}
    for stream in streams:
        name, columns = stream["stream"], stream["columns"]
        key = [columns.index(each) for each in stream["primary_key"]] if stream["kind"] == "rows" else []
        seen = newest(rows_of(file_tables(folder / "out" / name), columns), key)
        wanted = Counter(table_rows(url, tables_by_stream.get(name, name), columns))
        assert seen == wanted, f"{name} differs"


def test_pgbench_is_synced_into_a_lake(database: str, tmp_path: Path) -> None:
    pgbench(database, "-i", "-q", "-s", "1")
    command(tmp_path, "init", "--sink", "lake", "--pipeline", "bench", "-o", "bench.yaml", url=database)
    [pipeline] = document(tmp_path, "check", "bench.yaml", url=database)["pipelines"]
    names = ["pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers"]
    assert [stream["stream"] for stream in pipeline["streams"]] == names
    assert all(stream["problem"] is None for stream in pipeline["streams"])
    for transactions in (10, 40):
        pgbench(database, "-n", "-t", str(transactions), "-c", "2")
        command(tmp_path, "run", "bench.yaml", url=database)
        place = Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="bench")
        for stream in pipeline["streams"]:
            table = tables.load_table(place, stream["stream"])
            assert table is not None
            seen = Counter(rows_of([table.scan().to_arrow()], stream["columns"]))
            assert seen == Counter(table_rows(database, stream["stream"], stream["columns"]))
