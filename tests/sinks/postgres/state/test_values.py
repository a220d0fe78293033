"""Values as columns read them; what does not fit, and what is not understood, is quarantined with its reason."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from tests.sinks.postgres.state.entities import INFO, STREAM, Entities, add, document, fan_out, put, take

from penstock.core.content import Column
from penstock.core.ops import FanOut, Layout
from penstock.core.outcome import Outcome
from penstock.core.types import Decimal, Plain
from penstock.errors import StreamFailed, StreamRefused

TYPED = Layout(
    key=(Column("shop", Plain.STRING, "text"), Column("no", Plain.INT32, "integer")),
    scalars=(
        Column("post", Plain.INT64, "bigint"),
        Column("price", Decimal(6, 2), "numeric(6,2)"),
        Column("code", Plain.STRING, "character varying(3)"),
        Column("seen", Plain.STRING, "timestamp with time zone"),
        Column("ratio", Plain.FLOAT64, "double precision"),
        Column("ok", Plain.BOOL, "boolean"),
        Column("data", Plain.STRING, "jsonb"),
        Column("title", Plain.STRING, "text"),
    ),
    multi=(Column("tags", Plain.INT64, "bigint"), Column("ids", Plain.STRING, "uuid")),
    fan_outs=(FanOut("posts", ("post",), ("title",)),),
)
UUID = "0190c0de-0000-7000-8000-000000000001"


def made(*ops: Any, no: Any = 1) -> dict[str, Any]:
    return document(*ops, key=["a", no], creates=True)


def quarantined(entities: Entities) -> list[tuple[int, Any, str]]:
    found = entities.rows("SELECT key, reason FROM penstock_sink.quarantine ORDER BY id")
    return [(key["id"], key["op"], reason) for key, reason in found]


def test_values_arrive_as_their_types(database: str) -> None:
    entities = Entities(database, TYPED)
    ops = [put("price", "12.50"), put("code", "abc"), put("seen", "2026-01-01 10:00:00+02"), put("ratio", "NaN")]
    ops += [put("ok", True), put("data", '{"a": [1, 2]}'), put("title", "x%y"), put("post", "05"), add("7"), add(8)]
    assert entities.deliver(made(*ops, add(7), take("8"), add(UUID.upper(), "ids"))) == Outcome(created=1)
    found = entities.rows(
        f"SELECT shop, no, post, price::text, code, seen, ratio::text, ok, data, title, tags, ids::text FROM {STREAM}"
    )
    assert [(*row[:5], row[5].isoformat(), *row[6:]) for row in found] == [
        ("a", 1, 5, "12.50", "abc", "2026-01-01T08:00:00+00:00", "NaN", True, {"a": [1, 2]}, "x%y", [7], f"{{{UUID}}}")
    ]
    types = entities.rows(
        f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{STREAM}'::regclass "
        "AND attnum > 0 ORDER BY attnum"
    )
    assert [type_ for (type_,) in types][2:6] == [
        "bigint",
        "numeric(6,2)",
        "character varying(3)",
        "timestamp with time zone",
    ]
    assert [type_ for (type_,) in types][-2:] == ["bigint[]", "uuid[]"]
    # A filter and a match are compared as the column reads them.
    late = fan_out("posts", {"field": "post", "eq": " 5 "}, put("title", "five"))
    assert entities.deliver(late, made(put("post", 5), no="2")) == Outcome(created=1, updated=1)
    assert entities.rows(f"SELECT no, title FROM {STREAM} ORDER BY no") == [(1, "five"), (2, "five")]


BAD: list[tuple[dict[str, Any], str]] = [
    (put("post", "x"), "field 'post' (bigint): the value cannot be read as this type"),
    (put("post", 2**63 - 1 + 2**63), "field 'post' (bigint): a number is out of range"),
    (put("price", "1.234"), "field 'price' (numeric(6,2)): does not hold the value exactly"),
    (put("price", 12345), "field 'price' (numeric(6,2)): a number is out of range"),
    (put("code", "abcd"), "field 'code' (character varying(3)): does not hold the value exactly"),
    (put("seen", "soon"), "field 'seen' (timestamp with time zone): a value cannot be read as a date or time"),
    (put("ok", {"a": 1}), "field 'ok' (boolean): the value cannot be read as this type"),
    (add("x"), "field 'tags' (bigint): the value cannot be read as this type"),
    (add("x", "ids"), "field 'ids' (uuid): the value cannot be read as this type"),
    (put("titel", 1), "unknown field 'titel'; did you mean 'title'?"),
    ({"op": "odd"}, "unknown op 'odd'; did you mean 'add'?"),
]


def test_an_op_whose_value_does_not_fit_is_not_applied(database: str) -> None:
    entities = Entities(database, TYPED)
    good = [put("post", 1), put("price", "1.00"), put("code", "abc"), put("ok", True), add(1)]
    outcome = entities.deliver(made(*good), *(made(op) for op, _ in BAD), made(put("title", "end")))
    assert outcome == Outcome(created=1, quarantined=len(BAD))
    assert entities.rows(f"SELECT post, price::text, code, ok, tags, title FROM {STREAM}") == [
        (1, "1.00", "abc", True, [1], "end")
    ]
    found = quarantined(entities)
    assert sorted((id_, reason) for id_, _, reason in found) == [
        (number, reason) for number, (_, reason) in enumerate(BAD, start=2)
    ]
    assert {json.dumps(op) for _, op, _ in found} == {json.dumps(op) for op, _ in BAD}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (made(no="x"), "field 'no' (integer): the value cannot be read as this type"),
        (document(key=1, creates=True), "`key` has 1 part, and the key of the entity is (shop, no)"),
        ("{", "it is not JSON that Postgres can read"),
        (
            '{"v": 1, "table": "\\u0000", "key": ["a", 1], "creates": true, "ops": []}',
            "it is not JSON that Postgres can",
        ),
        (fan_out("posts", {"field": "post", "eq": "x"}, put("title", "y")), "field 'post' (bigint): the value cannot"),
        (fan_out("other", {"field": "tags", "in": [1, "x"]}, put("title", "y")), "field 'tags' (bigint): the value "),
        (fan_out("other", {"field": "post", "eq": 1}, add("x")), "field 'tags' (bigint): the value cannot be read"),
    ],
)
def test_a_document_that_does_not_fit_changes_nothing(database: str, bad: Any, reason: str) -> None:
    entities = Entities(database, TYPED)
    entities.deliver(made(put("post", 1), put("title", "x")))
    before = entities.rows(f"SELECT * FROM {STREAM}")
    assert entities.deliver(bad).quarantined == 1
    ((id_, _, why),) = quarantined(entities)
    assert id_ == 2
    assert why.startswith(reason)
    assert entities.rows(f"SELECT * FROM {STREAM}") == before


def test_quarantined_ops_are_listed_and_not_replayed(database: str) -> None:
    entities = Entities(database)
    entities.deliver(document(put("size", "x"), put("post", 1), key=1, creates=True))
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        counts, (row,) = sink.quarantined([], limit=5)
        assert (counts, row.stream, row.number, row.code) == ({STREAM: 1}, STREAM, 1, "22P02")
        assert json.loads(row.key) == {"id": 1, "op": put("size", "x")}
        with pytest.raises(StreamRefused, match="quarantined ops cannot be replayed"):
            sink.replay(STREAM, [], overwrite=True)
        assert sink.drop([STREAM], []) == 1


def test_a_row_that_the_table_rejects_stops_the_stream(database: str) -> None:
    entities = Entities(database)
    entities.run(
        f"CREATE TABLE {STREAM} (id bigint PRIMARY KEY, size bigint CHECK (size > 0), mine text DEFAULT 'm', "
        "post bigint, title text, tags text[])"
    )
    entities.deliver(*(document(put("size", key), key=key, creates=True) for key in (1, 2, 3)))
    entities.run(f"UPDATE {STREAM} SET mine = 'own' WHERE id = 2")
    with pytest.raises(StreamFailed, match=r"a check constraint fails \(images_size_check\), in the row with key id=2"):
        entities.deliver(
            document(put("size", 7), key=1), document(put("size", 0), key=2), document(put("size", 8), key=3)
        )
    assert entities.rows(f"SELECT id, size, mine FROM {STREAM} ORDER BY id") == [
        (1, 1, "m"),
        (2, 2, "own"),
        (3, 3, "m"),
    ]
    outcome = entities.deliver(document(put("size", 9), key=2), document(put("size", 3), key=3))
    assert outcome == Outcome(updated=1, equal=1)
    assert entities.rows(f"SELECT size, mine, tags FROM {STREAM} WHERE id = 2") == [(9, "own", [])]
