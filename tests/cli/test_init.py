"""`penstock init` and `penstock discover`: the file that is written, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.cli.looked import Looking, document
from tests.harness.postgres import PostgresServer
from typer.testing import CliRunner, Result

from penstock.cli import app

TABLES = """
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON orders (updated_at, id);
CREATE TABLE tmp_orders (id int PRIMARY KEY);
CREATE TABLE country (code text PRIMARY KEY);
CREATE VIEW latest AS SELECT max(updated_at) AS latest FROM orders;
"""


def execute(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(text.encode())


@pytest.fixture
def shop(database: str) -> str:
    execute(database, TABLES)
    return database


def streams(folder: Path, url: str, file: str = "penstock.yaml") -> dict[str, str]:
    """What `check` has of a file: how each stream is read, where nothing is refused."""
    done = Looking(folder, url).run("check", file, "--json")
    assert done.code == 0, done.out + done.err
    [pipeline] = document(done)["pipelines"]
    return {stream["stream"]: stream["how"] for stream in pipeline["streams"]}


class TestTheFile:
    def test_it_says_how_each_table_is_read_and_why(self, shop: str, tmp_path: Path) -> None:
        done = Looking(tmp_path, None).run("init", shop)
        assert done.code == 0, done.err
        text = (tmp_path / "penstock.yaml").read_text()
        assert "      # cursor updated_at: new rows get the time by default" in text
        assert "      orders:\n        cursor: updated_at\n        tiebreaker: id\n" in text
        assert 'url: "${DATABASE_URL}"' in text
        assert "Not synced:" in text
        assert "      # latest: {}" in text
        assert streams(tmp_path, shop) == {
            "country": "full refresh in every run",
            "orders": "by updated_at, id",
            "tmp_orders": "full refresh in every run",
        }

    def test_it_ends_with_what_to_do_next(self, shop: str, tmp_path: Path) -> None:
        said = Looking(tmp_path, None).run("init", shop, "-o", "my.yaml").out
        assert said.startswith("Wrote my.yaml: 3 streams, 1 with a cursor, 2 full refresh in every run; 1 left out.\n")
        assert "export DATABASE_URL=" in said
        assert said.endswith("  penstock check my.yaml\n  penstock run my.yaml\n")
        again = Looking(tmp_path, shop).run("init", "-o", "other.yaml").out
        assert "export" not in again, "it is set already"

    def test_the_url_is_never_written_or_said(self, shop: str, tmp_path: Path) -> None:
        done = Looking(tmp_path, None).run("init", shop, "--url-env", "SHOP_DB")
        text = (tmp_path / "penstock.yaml").read_text()
        assert 'url: "${SHOP_DB}"' in text
        assert "://" not in text + done.out + done.err

    def test_names_and_views_are_chosen(self, shop: str, tmp_path: Path) -> None:
        Looking(tmp_path, shop).run("init", "--exclude", "tmp_*", "--views", "--pipeline", "sales")
        assert set(streams(tmp_path, shop)) == {"country", "latest", "orders"}
        Looking(tmp_path, shop).run("init", "--include", "o*", "-o", "o.yaml")
        assert set(streams(tmp_path, shop, "o.yaml")) == {"orders"}

    def test_a_lake_can_be_the_sink(self, shop: str, tmp_path: Path) -> None:
        execute(shop, 'CREATE TABLE "Orders" (id int); CREATE TABLE "tmp orders" (id int)')
        done = Looking(tmp_path, shop).run("init", "--sink", "lake", "--warehouse", "lake house", "--pipeline", "s")
        assert done.code == 0, done.err
        assert 'warehouse: "lake house"' in (tmp_path / "penstock.yaml").read_text()
        assert len(streams(tmp_path, shop)) == 5
        assert "        mode: merge\n" in (tmp_path / "penstock.yaml").read_text()

    def test_to_standard_output_it_is_the_same_and_nothing_is_written(self, shop: str, tmp_path: Path) -> None:
        shown = Looking(tmp_path, shop).run("init", "--stdout").out
        assert list(tmp_path.iterdir()) == []
        Looking(tmp_path, shop).run("init")
        assert (tmp_path / "penstock.yaml").read_text() == shown

    def test_hostile_names_stay_names(self, database: str, tmp_path: Path) -> None:
        names = [
            "a\nb: {}",
            "# x",
            "${HOME}",
            "$${X}",
            "null",
            "1e3",
            "a: b",
            "'",
            '"',
            "\\",
            "\x85x: {}",
            "😀\u2028y: 1",
            "- a",
        ]
        with psycopg.connect(database, autocommit=True) as db:
            for name in names:
                columns = sql.SQL("{} int PRIMARY KEY, _change text, updated_at timestamptz NOT NULL").format(
                    sql.Identifier(name)
                )
                db.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), columns))
        done = Looking(tmp_path, database).run("init", "--pipeline", "odd")
        assert done.code == 0, done.err
        checked = document(Looking(tmp_path, database).run("check", "penstock.yaml", "--json"))
        found = checked["pipelines"][0]["streams"]
        assert sorted(stream["columns"][0] for stream in found) == sorted(names)
        assert {stream["columns"][-1] for stream in found} == {"updated_at"}
        assert all(stream["problem"] is None for stream in found)


class TestAdding:
    def test_tables_that_the_file_lacks_are_added_and_the_rest_stays(self, shop: str, tmp_path: Path) -> None:
        path = tmp_path / "penstock.yaml"
        Looking(tmp_path, shop).run("init", "--include", "orders", "--pipeline", "shop")
        mine = path.read_text().replace(
            "      orders:", "      # mine\n      bestellungen: # my name\n        table: orders"
        )
        path.write_text(mine + "\n# the end\n")
        execute(
            shop, "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, updated_at timestamptz)"
        )
        done = Looking(tmp_path, shop).run("init", "--add", "--exclude", "tmp_*")
        assert done.code == 0, done.err
        assert "Added 2 streams to penstock.yaml: country, events.\n" in done.out
        text = path.read_text()
        assert text.startswith(mine.rstrip("\n"))
        assert text.endswith("# the end\n")
        assert set(streams(tmp_path, shop)) == {"bestellungen", "country", "events"}
        again = Looking(tmp_path, shop).run("init", "--add", "--exclude", "tmp_*")
        assert "Nothing to add" in again.out
        assert path.read_text() == text
        assert [each.name for each in tmp_path.iterdir()] == ["penstock.yaml"]

    def test_a_name_that_another_table_has(self, shop: str, tmp_path: Path) -> None:
        path = tmp_path / "penstock.yaml"
        Looking(tmp_path, shop).run("init", "--include", "orders", "--pipeline", "shop")
        path.write_text(path.read_text().replace("      orders:", "      country:\n        table: orders"))
        assert Looking(tmp_path, shop).run("init", "--add", "--include", "country").code == 0
        assert set(streams(tmp_path, shop)) == {"country", "country_2"}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "the file is empty"),
            ("pipelines: {p: {source: {type: postgres, url: x}}}", "url: must start with postgresql://"),
            (
                'pipelines: {p: {source: {type: postgres, url: "${DATABASE_URL}"}, sink: {type: files, directory: o}}}',
                "lists no streams, so it already syncs every table of its schema",
            ),
            (
                'pipelines: {p: {source: {type: postgres, url: "${DATABASE_URL}"}, sink: {type: files, directory: o}, '
                "streams: {country: {}}}}",
                "are written in braces",
            ),
        ],
    )
    def test_files_that_nothing_can_be_added_to(self, shop: str, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "penstock.yaml").write_text(text)
        done = Looking(tmp_path, shop).run("init", "--add")
        assert (done.code, said in done.err) == (2, True), done.err
        assert (tmp_path / "penstock.yaml").read_text() == text

    def test_a_file_that_is_not_there(self, shop: str, tmp_path: Path) -> None:
        done = Looking(tmp_path, shop).run("init", "--add")
        assert (done.code, "there is no file penstock.yaml" in done.err) == (2, True)


class TestWhatIsRefused:
    def test_a_file_that_is_there_is_kept(self, shop: str, tmp_path: Path) -> None:
        (tmp_path / "penstock.yaml").write_text("mine")
        done = Looking(tmp_path, shop).run("init")
        assert done.code == 2
        assert "penstock.yaml already exists" in done.err
        assert (tmp_path / "penstock.yaml").read_text() == "mine"
        assert Looking(tmp_path, shop).run("init", "--force").code == 0
        assert "orders" in streams(tmp_path, shop)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ((), "there is no URL argument, and the environment variable DATABASE_URL is not set"),
            (("mysql://ann:hunter2@db/shop",), "url: must start with postgresql://"),
            (("postgresql://ann:hun@ter2@db/shop",), "percent-encode"),
            (
                ("postgresql://ann:hunter2@127.0.0.1:1/shop", "--url-env", "A B"),
                "not a valid name of an environment variable",
            ),
            (("postgresql://ann:hunter2@127.0.0.1:1/shop", "--sink", "fils"), "did you mean 'files'?"),
            (("postgresql://a@127.0.0.1:1/s", "--sink", "lake", "--directory", "x"), "--directory cannot be used with"),
        ],
    )
    def test_what_cannot_be_meant(self, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
        done = Looking(tmp_path, None).run("init", *words)
        assert done.code == 2
        assert said in done.err
        assert "hunter2" not in done.err + done.out
        assert list(tmp_path.iterdir()) == []

    def test_a_server_that_does_not_answer_is_3_and_keeps_its_password(self, tmp_path: Path) -> None:
        done = Looking(tmp_path, None).run("init", "postgresql://ann:hunter2@127.0.0.1:1/shop")
        assert done.code == 3
        assert "hunter2" not in done.err + done.out

    def test_an_empty_schema_and_one_that_is_not_there(self, shop: str, tmp_path: Path) -> None:
        execute(shop, "CREATE SCHEMA bare")
        done = Looking(tmp_path, shop).run("init", "--schema", "bare")
        assert (done.code, "there are no tables to sync in schema bare" in done.err) == (2, True)
        done = Looking(tmp_path, shop).run("init", "--schema", "publik")
        assert (done.code, "did you mean 'public'?" in done.err) == (2, True)
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def reader(postgres_server: PostgresServer, shop: str) -> Iterator[str]:
    """The shop as one who may read the countries only."""
    execute(shop, "DROP ROLE IF EXISTS onlooker; CREATE ROLE onlooker LOGIN PASSWORD 'onlooker'")
    execute(shop, "GRANT SELECT ON country TO onlooker")
    yield postgres_server.url(Path(shop).name, user="onlooker", password="onlooker")
    execute(shop, "DROP OWNED BY onlooker; DROP ROLE onlooker")


def test_what_may_not_be_read_stands_in_the_file_with_the_grant(reader: str, tmp_path: Path) -> None:
    assert Looking(tmp_path, reader).run("init").code == 0
    text = (tmp_path / "penstock.yaml").read_text()
    assert "GRANT SELECT ON public.orders TO onlooker;" in text
    assert "      # orders: {}" in text
    assert streams(tmp_path, reader) == {"country": "full refresh in every run"}


class TestDiscover:
    FILE = """
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    streams:
      bought: {table: public.orders, cursor: updated_at, tiebreaker: id}
"""

    def test_what_there_is_and_what_of_it_is_synced(self, shop: str, tmp_path: Path) -> None:
        (tmp_path / "shop.yaml").write_text(self.FILE)
        done = Looking(tmp_path, shop).run("discover", "shop.yaml", "--json")
        assert done.code == 0, done.err
        found = {stream["stream"]: stream for stream in document(done)["streams"]}
        assert list(found) == ["country", "latest", "orders", "tmp_orders"]
        orders = found["orders"]
        assert (orders["synced"], orders["synced_as"], orders["how"]) == (True, "bought", "by updated_at, id")
        assert orders["proposal"] == {"cursor": "updated_at", "tiebreaker": "id"}
        assert orders["columns"][1] == {"name": "updated_at", "type": "timestamp with time zone"}
        assert [name for name, stream in found.items() if stream["synced"]] == ["orders"]
        assert list(tmp_path.iterdir()) == [tmp_path / "shop.yaml"]

    def test_as_text_with_columns_and_reasons(self, shop: str, tmp_path: Path) -> None:
        (tmp_path / "shop.yaml").write_text(self.FILE)
        lines = Looking(tmp_path, shop).run("discover", "shop.yaml", "--columns", "--why").out.splitlines()
        assert lines[0].split() == ["stream", "what", "rows", "size", "key", "synced", "proposal"]
        assert "    updated_at: timestamp with time zone" in lines
        assert any(line.startswith("    # cursor updated_at: ") for line in lines)
        assert any("as bought, by updated_at, id" in line for line in lines)

    def test_every_stream_of_a_pipeline_that_discovers_is_synced(self, shop: str, tmp_path: Path) -> None:
        (tmp_path / "shop.yaml").write_text(self.FILE.partition("    streams:")[0])
        found = document(Looking(tmp_path, shop).run("discover", "shop.yaml", "--json"))["streams"]
        assert [stream["stream"] for stream in found if stream["synced"]] == ["country", "orders", "tmp_orders"]


def test_into_another_schema_of_postgres(shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", shop)

    def penstock(*words: str) -> Result:
        return CliRunner().invoke(app, words, prog_name="penstock")

    unset = penstock("init", "--sink", "postgres")
    assert (unset.exit_code, "environment variable SINK_URL, which is not set" in unset.output) == (2, True)
    monkeypatch.setenv("COPY_DB", shop)
    itself = penstock("init", "--sink", "postgres", "--sink-url-env", "COPY_DB")
    assert (itself.exit_code, "would be written into themselves" in itself.output) == (2, True)
    execute(shop, "CREATE SCHEMA copies")
    made = penstock("init", "--sink", "postgres", "--sink-url-env", "COPY_DB", "--sink-schema", "copies")
    assert made.exit_code == 0, made.output
    text = Path("penstock.yaml").read_text()
    assert '      type: postgres\n      url: "${COPY_DB}"\n      schema: copies\n' in text
    assert "        tiebreaker: id\n        newer_than: updated_at\n" in text
    assert shop not in text
    checked = penstock("check", "penstock.yaml", "--verbose")
    assert checked.exit_code == 0, checked.output
    assert "lands in copies.orders by (id): one row for each key" in checked.output
    misfit = penstock("init", "--sink", "lake", "--sink-schema", "copies", "--force")
    assert (misfit.exit_code, "--sink-schema cannot be used with --sink lake" in misfit.output) == (2, True)
