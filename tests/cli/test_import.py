"""`penstock import rustream`: rustream itself makes the state, and the next run delivers exactly what is new."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command, Outcome
from tests.sources.tables import execute, rows

CONFIG = """\
postgres: {{host: "{host}", port: {port}, database: {database}, user: {user}, password: "{password}"}}
output: {{type: local, path: out}}
batch_size: 3
state_dir: state
tables:
  - {{name: users, incremental_column: updated_at, incremental_tiebreaker_column: id, partition_by: month}}
  - {{name: events, incremental_column: id, incremental_column_is_unique: true, colums: [id]}}
  - {{name: notes, schema: sales, incremental_column: day, incremental_tiebreaker_column: id, columns: [id, day]}}
  - {{name: kinds}}
"""
TABLES = (
    "CREATE TABLE users (id int PRIMARY KEY, updated_at timestamptz NOT NULL, name text)",
    "CREATE INDEX ON users (updated_at, id)",
    "CREATE TABLE events (id bigint PRIMARY KEY, what text)",
    "CREATE SCHEMA sales",
    "CREATE TABLE sales.notes (id bigint PRIMARY KEY, day date NOT NULL, note text)",
    "CREATE INDEX ON sales.notes (day, id)",
    "CREATE TABLE kinds (id int PRIMARY KEY, name text)",
    "INSERT INTO kinds VALUES (1, 'one'), (2, 'two')",
    # More rows with one cursor value than rustream takes at once.
    "INSERT INTO users SELECT n, '2026-11-01 12:00:00.123456+01', 'user ' || n FROM generate_series(1, 8) n",
    "INSERT INTO events SELECT n, 'event ' || n FROM generate_series(1, 10) n",
    "INSERT INTO sales.notes SELECT n, '2026-11-01', 'note ' || n FROM generate_series(1, 5) n",
)
NEWS = (
    "INSERT INTO users VALUES (9, '2026-11-01 12:00:00.123456+01', 'the same time'), (10, '2026-11-02', 'later')",
    "INSERT INTO events VALUES (11, 'event 11')",
    "INSERT INTO sales.notes VALUES (6, '2026-11-01', 'the same day'), (7, '2026-11-03', 'later')",
)
#: table, and the columns that tell its rows apart
FOLLOWED = {"users": "id, name", "events": "id, what", "notes": "id, day"}


class Shop:
    """A database that rustream has read once, and a folder with its files and its state."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.command = Command(folder, "loop", {"DATABASE_URL": url})
        execute(url, *TABLES)
        at = urlsplit(url)
        user, password = unquote(at.username or ""), unquote(at.password or "")
        text = CONFIG.format(
            host=at.hostname, port=at.port, database=at.path.lstrip("/"), user=user, password=password or "none"
        )
        (folder / "config.yaml").write_text(text)
        self.rustream()

    def rustream(self) -> None:
        """Once more."""
        program = [str(Path(sys.executable).parent / "rustream"), "sync", "--config", "config.yaml"]
        # Tables without a cursor never end if they have more rows than a batch.
        done = subprocess.run(program, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def take_over(self, *words: str) -> Outcome:
        return self.command.run("import", "rustream", "config.yaml", "--yes", *words)

    def run(self) -> Outcome:
        done = self.command.run("run", "penstock.yaml")
        assert done.code == 0, done.out + done.err
        return done

    def state(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "state" / "rustream_state.db")) as db, db:
            db.execute(statement)

    def counts(self, table: str) -> Counter[tuple[object, ...]]:
        """The rows of both, as a reader of the folder sees them."""
        names = FOLLOWED[table].split(", ")
        found: Counter[tuple[object, ...]] = Counter()
        for path in (self.folder / "out" / table).rglob("*.parquet"):
            columns = pq.ParquetFile(path).read(names).to_pydict()
            found.update(zip(*(columns[name] for name in names), strict=True))
        return found

    def expect_all_once(self) -> None:
        for table, names in FOLLOWED.items():
            place = "sales.notes" if table == "notes" else table
            assert self.counts(table) == Counter(rows(self.url, f"SELECT {names} FROM {place}")), table


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    return Shop(database, tmp_path)


def test_the_next_run_delivers_exactly_what_is_new(shop: Shop) -> None:
    execute(shop.url, *NEWS)
    done = shop.take_over()
    assert done.code == 0, done.out + done.err
    assert "users: continues up to updated_at 2026-11-01 11:00:00.123456+00, id 8" in done.out
    shop.run()
    shop.expect_all_once()
    assert rows(shop.url, "SELECT count(*) FROM users") == [(10,)]
    execute(shop.url, "UPDATE users SET updated_at = '2026-11-05', name = 'renamed' WHERE id = 3")
    shop.run()
    found = shop.counts("users")
    assert found[3, "renamed"] == 1
    assert found.total() == 11
    # Tables without a cursor have a folder of their own, with the newest copy.
    copies = [*(shop.folder / "out_whole" / "kinds" / "current").glob("*.parquet")]
    assert [pq.ParquetFile(path).read().num_rows for path in copies] == [2]


def test_the_commands_of_the_page(shop: Shop) -> None:
    [block] = blocks(TOP / "docs" / "import-rustream.md", "bash")
    lines = [line.partition("#")[0].split() for line in block.text.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "penstock"]
    assert len(commands) == len(lines) - 1
    for words in commands:
        done = shop.command.run(*words, *(["--yes"] if words[0] == "import" else []))
        assert done.code == 0, done.out + done.err
    shop.expect_all_once()


def test_the_file_says_what_differs(shop: Shop) -> None:
    done = shop.take_over("--file-only")
    assert done.out == "penstock.yaml was written. Its comments say what differs from rustream.\n"
    text = (shop.folder / "penstock.yaml").read_text()
    assert "none" not in text.replace("none of", ""), "the password is not copied"
    for said in (
        "# batch_size: 3 rows made one file of rustream.",
        "# tables.events.colums: rustream does not know this key; it is left out.",
        "# partition_by: month: rustream makes folders by the time of its run",
        "users: {cursor: updated_at, tiebreaker: id}",
        "events: {cursor: id, unique: true}",
        'notes: {table: "sales.notes", cursor: day, tiebreaker: id, columns: [id, day]}',
        "directory: out_whole",
    ):
        assert said in text, text
    assert shop.command.run("check", "penstock.yaml").code == 0
    # A file that is there is the user's.
    (shop.folder / "penstock.yaml").write_text(text.replace("pipelines:", "store: marks.db\npipelines:"))
    done = shop.take_over("--stream", "users")
    assert done.out.startswith("penstock.yaml is there and stays as it is.\n")
    assert (shop.folder / "marks.db").exists()


@pytest.mark.parametrize("point", ["gate.intended", "files.manifest_linked", "gate.committed"])
def test_killed_while_marks_are_set(shop: Shop, point: str) -> None:
    execute(shop.url, *NEWS)
    assert shop.command.kill_at(point, "import", "rustream", "config.yaml", "--yes")
    again = shop.take_over()
    assert again.code == 0, again.out + again.err
    shop.run()
    shop.expect_all_once()


def test_what_cannot_be_taken_over(shop: Shop) -> None:
    shop.state("UPDATE watermarks SET cursor_value = NULL WHERE table_name = 'users'")
    shop.state("UPDATE watermarks SET watermark_value = '-5' WHERE table_name = 'events'")
    done = shop.take_over("--stream", "users")
    assert done.code == 2
    assert (
        "users: rustream's watermark of users (updated_at = 2026-11-01 11:00:00.123456) has no tiebreaker: of the rows "
        "with this value, some may be delivered and some not\n" in done.err
    ), done.err
    done = shop.take_over("--stream", "events")
    assert "events: it cannot go on behind id = -5: public.events has no row up to there\n" in done.err, done.err
    shop.state("UPDATE watermarks SET watermark_value = 'soon' WHERE table_name = 'events'")
    assert 'invalid input syntax for type bigint: "soon"' in shop.take_over("--stream", "events").err
    shop.state("DELETE FROM watermarks WHERE table_name = 'events'")
    done = shop.take_over("--stream", "events")
    assert "rustream has no watermark of these tables: there is nothing to take over\n" in done.err, done.err
    assert not [*shop.folder.glob("out/*/_penstock*")], "nothing was begun"
    assert shop.take_over("--stream", "notes").code == 0
    done = shop.take_over("--stream", "notes")
    assert "/notes: has begun already and stays at its mark: up to day 2026-11-01, id 5\n" in done.out, done.out


def test_rows_that_may_still_come_below_the_watermark(shop: Shop) -> None:
    with psycopg.connect(shop.url) as writer:
        writer.execute("INSERT INTO users VALUES (100, now(), 'late')")
        execute(shop.url, "INSERT INTO users VALUES (101, now(), 'in time')")
        shop.rustream()
        done = shop.take_over("--stream", "users")
        assert done.code == 2
        assert (
            "transactions are open that may have written rows below it, which would never be delivered\n" in done.err
        ), done.err
    assert shop.take_over("--stream", "users").code == 0


def test_a_watermark_whose_row_was_changed_since(shop: Shop) -> None:
    execute(shop.url, "UPDATE users SET updated_at = '2026-11-04', name = 'changed' WHERE id = 8")
    assert shop.take_over().code == 0
    shop.run()
    found = shop.counts("users")
    assert found[8, "changed"] == found[8, "user 8"] == 1
    assert found.total() == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "config.yaml cannot be taken over: it is not a configuration of rustream\n"),
        ("postgres: [", "config.yaml cannot be taken over: it is not YAML: "),
        (
            "postgres: {host: h, database: d, user: u}",
            "it has no `output`: it only says how files are read into Postgres",
        ),
        ("postgres: {host: h, database: d}\noutput: {type: local, path: o}", "postgres.user: Field required\n"),
        (
            "postgres: {host: h, database: d, user: u}\noutput: {type: local, path: o}\nformat: iceberg\n"
            "warehouse: w\ncatalog: {type: glue, glue_database: g}",
            "the configuration uses a Glue catalog, which `penstock import` does not take over\n",
        ),
    ],
)
def test_a_configuration_that_cannot_be_taken_over(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    done = Command(tmp_path, "loop").run("import", "rustream", "config.yaml")
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "penstock.yaml").exists()


@pytest.mark.parametrize(
    ("more", "sink"),
    [
        (
            "output: {type: s3, bucket: shop-lake, prefix: raw/pg, region: eu-central-1}",
            {"type": "files", "directory": "s3://shop-lake/raw/pg", "s3": {"region": "eu-central-1"}},
        ),
        (
            "output: {type: local, path: o}\nformat: iceberg\nwarehouse: s3://shop-lake/warehouse",
            {"type": "lake", "warehouse": "s3://shop-lake/warehouse"},
        ),
    ],
)
def test_other_places(tmp_path: Path, more: str, sink: dict[str, object]) -> None:
    text = "postgres: {host: h, database: d, user: u}\ntables:\n"
    text += "  - {name: t, incremental_column: id, incremental_column_is_unique: true}\n"
    (tmp_path / "config.yaml").write_text(text + more)
    assert Command(tmp_path, "loop").run("import", "rustream", "config.yaml").code == 0
    assert yaml.safe_load((tmp_path / "penstock.yaml").read_text())["pipelines"]["d"]["sink"] == sink


def test_a_place_without_a_state(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "postgres: {host: h, database: d, user: u}\noutput: {type: local, path: o}\ntables: [{name: t}]"
    )
    command = Command(tmp_path, "loop")
    done = command.run("import", "rustream", "config.yaml")
    assert done.code == 0
    assert done.out.endswith("There is no state of rustream: the first run reads every table from the beginning.\n")
    done = command.run("import", "rustream", "config.yaml", "--state", "elsewhere")
    assert "there is no state of rustream at elsewhere\n" in done.err
