"""A role that may not do what a run needs: said before it is needed, with statements that can be pasted."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.cli.looked import Looking, document
from tests.sinks.postgres.deliveries import STREAM, Deliveries, content_of
from tests.sources.tables import execute

from penstock.cli.check.text import split_statements
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.errors import InputError, StreamRefused
from penstock.ports import StreamInfo

ROWS = pa.table({"id": [1, 2], "note": ["a", "b"]})
ROLE = "Ann O"


@pytest.fixture
def ann(database: str) -> str:
    """The URL of a role that may connect and nothing else."""
    execute(
        database,
        f"DO $$ BEGIN CREATE ROLE \"{ROLE}\" LOGIN PASSWORD 'ann'; EXCEPTION WHEN duplicate_object THEN END $$",
        "REVOKE ALL ON SCHEMA public FROM public",
        "GRANT USAGE ON SCHEMA public TO public",
    )
    parts = urlsplit(database)
    return f"postgresql://Ann%20O:ann@{parts.hostname}:{parts.port}{parts.path}"


def asked(orders: Deliveries, info: StreamInfo) -> list[str]:
    """The statements that a check asks for, one problem after the other; none: it would go through."""
    with closing(orders.sink) as sink:
        try:
            sink.connect()
            sink.begin_run([info])
            sink.check(info, content_of(ROWS.schema))
        except InputError as refused:
            others = refused.others if isinstance(refused, StreamRefused) else ()
            return [statement for each in (refused, *others) for statement in split_statements(each.next_step)[1]] or [
                str(refused)
            ]
    return []


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (
            "SELECT 1",
            ['GRANT CREATE ON DATABASE {} TO "Ann O";', 'GRANT USAGE, CREATE ON SCHEMA public TO "Ann O";'],
        ),
        (
            "CREATE SCHEMA penstock_sink; CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
            [
                'GRANT USAGE, CREATE ON SCHEMA penstock_sink TO "Ann O";',
                'GRANT SELECT, INSERT, UPDATE, DELETE ON public.orders TO "Ann O";',
            ],
        ),
    ],
    ids=["nothing there", "all there"],
)
def test_a_check_asks_for_what_a_run_needs(database: str, ann: str, before: str, wanted: list[str]) -> None:
    execute(database, before)
    orders = Deliveries(ann, {"key": ["id"]})
    info = StreamInfo(STREAM, Kind.REFRESH, ("id",))
    granted: list[str] = []
    while statements := asked(orders, info):
        assert statements != granted[-len(statements) :], "the same again"
        granted += statements
        execute(database, *statements)
    assert granted == [each.format(urlsplit(database).path[1:]) for each in wanted]
    assert orders.deliver(ROWS, kind=Kind.REFRESH, key=["id"]) == Outcome(created=2)
    assert asked(orders, info) == []


def test_tables_of_the_sink_that_another_role_has_made(database: str, ann: str) -> None:
    Deliveries(database, {"key": ["id"], "into": "others"}, pipeline="theirs").deliver(ROWS)
    orders = Deliveries(ann, {"key": ["id"], "into": "others"})
    statements = asked(orders, StreamInfo(STREAM, Kind.ROWS))
    assert statements == [
        'GRANT USAGE, CREATE ON SCHEMA penstock_sink TO "Ann O";',
        *(
            f'GRANT SELECT, INSERT, UPDATE, DELETE ON penstock_sink.{table} TO "Ann O";'
            for table in ("ledger", "quarantine", "slices")
        ),
    ]
    execute(database, *statements)
    [statement] = asked(orders, StreamInfo(STREAM, Kind.ROWS))
    assert statement == 'GRANT SELECT, INSERT, UPDATE ON public.others TO "Ann O";'
    execute(database, statement)
    assert orders.deliver(ROWS) == Outcome(equal=2)


FILE = """
pipelines:
  copy:
    source: {{type: postgres, url: "{source}"}}
    sink: {{type: postgres, url: "{sink}"}}
    streams:
      a: {{into: copy_a}}
      b: {{into: copy_b}}
"""


def test_the_command_prints_each_statement_once(database: str, ann: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    (tmp_path / "shop.yaml").write_text(FILE.format(source=database, sink=ann))
    done = Looking(tmp_path, database).run("check", "shop.yaml")
    assert done.code == 2, done.out
    lines = [line.strip() for line in done.out.splitlines()]
    grants = [line for line in lines if "GRANT" in line]
    assert grants == [
        f'GRANT CREATE ON DATABASE {urlsplit(database).path[1:]} TO "Ann O";',
        'GRANT USAGE, CREATE ON SCHEMA public TO "Ann O";',
    ]
    assert "✗ a: there is no table public.copy_a, and the role Ann O may not create it" in lines
    assert "Next: run as the schema's owner: as above" in lines
    execute(database, *grants)
    assert Looking(tmp_path, database).run("check", "shop.yaml").code == 0


def test_every_problem_of_a_stream_is_listed(database: str, tmp_path: Path) -> None:
    execute(
        database,
        "CREATE TABLE a (id int PRIMARY KEY, n numeric, v text, at timestamptz)",
        "CREATE TABLE copy_a (id int, n int, v text GENERATED ALWAYS AS ('x') STORED, more int NOT NULL)",
    )
    file = FILE.format(source=database, sink=database).replace(
        "      a: {into: copy_a}\n      b: {into: copy_b}", "      a: {into: copy_a, create: false, newer_than: when}"
    )
    (tmp_path / "shop.yaml").write_text(file)
    done = Looking(tmp_path, database).run("check", "shop.yaml", "--json")
    assert done.code == 2
    [stream] = document(done)["pipelines"][0]["streams"]
    said = [problem["what"] for problem in stream["problems"]]
    for words in (
        "`newer_than` names the column when",
        "has no unique index on the key (id)",
        "column v of public.copy_a is generated",
        "public.copy_a has no column at",
        "column more of public.copy_a is NOT NULL",
    ):
        assert any(words in each for each in said), (words, said)
    text = Looking(tmp_path, database).run("check", "shop.yaml").out
    assert text.count("✗ a: ") == len(said) == 5
    assert "CREATE UNIQUE INDEX ON public.copy_a (id);" in [line.strip() for line in text.splitlines()]
    execute(database, "ALTER TABLE a DROP CONSTRAINT a_pkey")
    (tmp_path / "shop.yaml").write_text(file.replace("newer_than: when", "cursor: at, tiebreaker: id"))
    done = Looking(tmp_path, database).run("check", "shop.yaml", "--json")
    [stream] = document(done)["pipelines"][0]["streams"]
    assert [problem["what"].partition(":")[0] for problem in stream["problems"]] == [
        "the tiebreaker id does not tell rows of public.a apart",
        "public.a has no index on (at, id)",
    ]


def test_more_columns_than_can_be_staged(database: str) -> None:
    info = StreamInfo(STREAM, Kind.ROWS)
    wide = pa.schema([(f"c{number}", pa.int16()) for number in range(1600)])
    with closing(Deliveries(database).sink) as sink:
        with pytest.raises(StreamRefused, match="1,600 columns cannot be staged") as refused:
            sink.check(info, content_of(wide))
        assert refused.value.next_step == "leave 1 or more of them out with `shape` on the stream"
        sink.check(info, content_of(wide.remove(0)))
