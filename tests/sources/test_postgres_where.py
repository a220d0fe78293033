"""A condition of the user's own: only rows that meet it are read, and it can reach nothing else."""

from typing import Any

import pytest
from tests.sources.tables import ORDERS, execute, source
from tests.sources.test_postgres_keyset import delivered

from penstock.errors import StreamRefused

KEYSET: dict[str, Any] = {"cursor": "updated_at", "tiebreaker": "id"}
FILLED = (
    "INSERT INTO orders (updated_at, status, amount) SELECT timestamptz '2024-01-01Z' + g * interval '1 second',"
    " CASE g % 3 WHEN 0 THEN 'draft' WHEN 1 THEN 'paid' ELSE 'new' END, nullif(g, 5) FROM generate_series(1, 30) g"
)


@pytest.mark.parametrize("options", [KEYSET, {}, KEYSET | {"first_load": "keys"}])
@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("status <> 'draft'", [g for g in range(1, 31) if g % 3]),
        ("amount > 20 -- large ones", list(range(21, 31))),
        ("amount < 7", [1, 2, 3, 4, 6]),
        ("status LIKE '%af%' AND amount < 10", [3, 6, 9]),
        ("false", []),
    ],
)
def test_rows_that_meet_it_are_read(database: str, options: dict[str, Any], where: str, ids: list[int]) -> None:
    execute(database, ORDERS, FILLED)
    found = delivered(database, "orders", where=where, columns=["id"], **options)
    assert sorted(row["id"] for row in found) == ids


@pytest.mark.parametrize(
    "where",
    [
        "colour = 'red'",
        "amount >",
        "amount",
        "amount > 1) OR (true",
        "true); DELETE FROM orders; SELECT (true",
        "amount > 1; DELETE FROM orders",
    ],
)
def test_what_is_no_condition_is_refused(database: str, where: str) -> None:
    execute(database, ORDERS, FILLED)
    with pytest.raises(StreamRefused, match="`where` is not a valid condition") as refused:
        source(database, {"orders": KEYSET | {"where": where}}).content("orders")
    assert "correct `where`" in refused.value.next_step
    assert len(delivered(database, "orders", **KEYSET)) == 30


def test_a_changed_condition_is_another_content(database: str) -> None:
    execute(database, ORDERS, FILLED)
    contents = [source(database, {"orders": KEYSET | said}).content("orders") for said in ({}, {"where": "amount > 3"})]
    assert contents[0] != contents[1]
