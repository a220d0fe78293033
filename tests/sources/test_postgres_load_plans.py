"""What the plans of a first load cost, and what the statements of its parts read."""

from typing import Any

import pytest
from tests.sources.loads import STAMP, loader, made, of
from tests.sources.tables import execute, rows

from penstock.links.postgres.connection import Session
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.reader import part_condition, select_statement


class TestPlansTouchNoRows:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Every statement that is sent while planning."""
        sent: list[Any] = []
        answer = Session._answer

        def heard(session: Session, query: Any, **more: Any) -> Any:
            sent.append(query)
            return answer(session, query, **more)

        monkeypatch.setattr(Session, "_answer", heard)
        return sent

    @pytest.mark.parametrize(
        ("options", "most"),
        [({}, 40), ({"first_load": "cursor"}, 80), ({"cursor": "id", "tiebreaker": [], "unique": True}, 80)],
    )
    def test_a_plan_by_statistics_fetches_a_handful(
        self, database: str, by_statistics: None, asked: list[Any], options: dict[str, Any], most: int
    ) -> None:
        made(database, "UPDATE t SET c = c + n * interval '1 hour'", count=20_000)
        execute(database, "VACUUM ANALYZE t")
        load = loader(database, of(7000, workers=4), **options).begin()
        asked.clear()
        slice_ = load.plan()
        assert slice_
        assert fetched(database, asked) <= most

    def test_a_tick_walks_over_its_own_rows_alone(self, database: str, asked: list[Any]) -> None:
        made(database, count=20_000)
        load = loader(database, of(10**6)).run()
        execute(database, "INSERT INTO t SELECT -g, -g, now() FROM generate_series(1, 100) g", "VACUUM ANALYZE t")
        load.begin()
        asked.clear()
        assert load.turn()
        assert len(load.parts[-1][0]) == 100
        assert fetched(database, asked) <= 500


class TestStatements:
    @pytest.mark.parametrize(
        ("options", "scan"),
        [
            ({}, "Index Scan using t_pkey"),
            ({"first_load": "blocks"}, "Tid Range Scan"),
            ({"first_load": "cursor"}, "Bitmap Heap Scan"),
        ],
    )
    def test_a_part_looks_its_range_up_and_reads_no_other_row(
        self, database: str, options: dict[str, Any], scan: str
    ) -> None:
        made(database, "UPDATE t SET c = '2024-01-01Z'::timestamptz + n * interval '1 s'", STAMP, count=20_000)
        execute(database, "VACUUM FULL t", "VACUUM ANALYZE t")
        load = loader(database, of(5000), said={"horizon": {"margin": 0}}, **options).begin()
        slice_ = load.plan()
        assert slice_
        with load.open().reading(slice_) as reading:
            content = TableContent.parse(slice_.content)
            for part in reading.parts:
                statement = select_statement(content, part_condition(content, part)).as_string(None)
                [[[said]]] = rows(database, f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
                node = said["Plan"]
                assert scan in f"{node['Node Type']} using {node.get('Index Name')}"
                assert sum(touched(node)) == len(reading.reader.open(part).read_all())
        assert reading.parts


def fetched(url: str, statements: list[Any]) -> int:
    """Rows that the statements take out of table `t` or its indexes."""
    count = 0
    for statement in statements:
        text = statement if isinstance(statement, str) else statement.as_string(None)
        if '"t"' in text and "EXPLAIN" not in text:
            [[[said]]] = rows(url, f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")
            count += sum(touched(said["Plan"]))
    return count


def touched(node: dict[str, Any]) -> list[int]:
    of_table = node.get("Relation Name") == "t"
    removed = node.get("Rows Removed by Filter", 0)
    own = [(node["Actual Rows"] + removed) * node["Actual Loops"]] if of_table else []
    return own + [rows for child in node.get("Plans", []) for rows in touched(child)]
