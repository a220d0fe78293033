"""Each rule of a shape on real batches: what comes out, and what is refused."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shaping.shapes import PEOPLE, SALT, Given, reader, shaped, shaped_content

from penstock.core.slices import Part, Receipt
from penstock.errors import StreamFailed, StreamRefused
from penstock.links.pipe import carry
from penstock.shaping.options import Shape
from penstock.shaping.reader import ShapedReader


def column(name: str, table: pa.Table = PEOPLE, **rules: Any) -> list[Any]:
    found: list[Any] = shaped(table, **rules).column(name).to_pylist()
    return found


# ---------------------------------------------------------------- columns


def test_select_chooses_columns_and_their_order() -> None:
    assert shaped(select=["born", "id"]).column_names == ["born", "id"]


def test_drop_leaves_columns_out() -> None:
    assert shaped(drop=["email", "tags"]).column_names == ["id", "phone", "paid", "total", "born"]


def test_rename_comes_last_and_two_columns_may_change_names() -> None:
    found = shaped(
        select=["id", "email", "phone"], rename={"email": "phone", "phone": "email"}, mask={"phone": "last4"}
    )
    assert found.column_names == ["id", "phone", "email"]
    assert found.column("phone").to_pylist() == PEOPLE.column("email").to_pylist()
    assert found.column("email").to_pylist() == ["***4567", "***", "***", None]


def test_columns_that_no_rule_names_are_as_they_were() -> None:
    found = shaped(rename={"id": "key"})
    assert found.column("key").equals(PEOPLE.column("id"))
    assert found.drop_columns(["key"]).equals(PEOPLE.drop_columns(["id"]))


def test_cast() -> None:
    found = shaped(cast={"paid": "decimal(12,2)", "total": "double", "id": "text", "born": "timestamp"})
    assert found.column("paid").to_pylist() == PEOPLE.column("total").to_pylist()
    assert found.column("total").to_pylist() == [1.5, 20.0, None, -0.1]
    assert found.column("id").to_pylist() == ["1", "2", "3", "4"]
    assert found.schema.field("born").type == pa.timestamp("us")


def test_a_value_that_does_not_fit_fails_the_stream_and_is_not_shown() -> None:
    with pytest.raises(StreamFailed) as failed:
        shaped(cast={"email": "int32"})
    assert failed.value.what == ("column email: 3 values have no exact form as int32 (in a batch of 4 rows)")
    assert "on_error: null" in failed.value.next_step
    assert failed.value.stream == "people"
    assert "ann" not in str(failed.value)


def test_or_becomes_null() -> None:
    assert column("phone", cast={"phone": "int32"}, on_error="null") == [None, 1234567, None, None]
    assert column("total", cast={"total": "int16"}, on_error="null") == [None, 20, None, None]


class Aside:
    """A writer that only counts."""

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        return Receipt(part.index, "a", 0, batches.read_all().num_rows, 0, "", "{}")


def test_and_is_counted() -> None:
    shape = Shape.model_validate({"cast": {"phone": "int32", "total": "int16"}, "on_error": "null", "where": "id < 4"})
    receipt = carry(reader(PEOPLE, shape, most=2), Aside(), Part(0, "{}"))
    assert (receipt.read, receipt.rows, receipt.nulled) == (3, 3, 3)


def digest(text: str) -> str:
    return hmac.new(SALT.encode(), text.encode(), hashlib.sha256).hexdigest()


def test_hash_is_hmac_sha256_of_the_text() -> None:
    found = shaped(hash=["email", "id", "total", "born"], salt=SALT)
    assert found.column("email").to_pylist() == [
        digest("ann@example.org"),
        digest("bob@shop.example"),
        None,
        digest("not an address"),
    ]
    assert found.column("id")[0].as_py() == digest("1")
    assert found.column("total")[0].as_py() == digest("1.50")
    assert found.column("born")[2].as_py() == digest("2000-02-29")


def test_a_salt_that_is_longer_than_a_block() -> None:
    long = SALT * 10
    found = column("email", hash=["email"], salt=long)
    assert found[0] == hmac.new(long.encode(), b"ann@example.org", hashlib.sha256).hexdigest()


def test_sha256_is_what_everybody_computes() -> None:
    found = column("email", hash={"email": "sha256"})
    assert found[1] == hashlib.sha256(b"bob@shop.example").hexdigest()


def test_bytes_are_hashed_as_they_are() -> None:
    table = pa.table(
        {"raw": pa.array([b"\xff\x00", b"", None], pa.binary()), "two": pa.array([b"ab"] * 3, pa.binary(2))}
    )
    assert column("raw", table, hash={"raw": "sha256"}) == [
        hashlib.sha256(b"\xff\x00").hexdigest(),
        hashlib.sha256(b"").hexdigest(),
        None,
    ]
    assert column("two", table, hash={"two": "sha256"}) == [hashlib.sha256(b"ab").hexdigest()] * 3
    views = pa.table({"raw": table.column("raw").cast(pa.binary_view())})
    assert column("raw", views, hash={"raw": "sha256"}) == column("raw", table, hash={"raw": "sha256"})


def test_what_is_cast_and_hashed_is_cast_first() -> None:
    assert column("total", cast={"total": "decimal(12,4)"}, hash=["total"], salt=SALT)[0] == digest("1.5000")


@pytest.mark.parametrize(
    ("how", "name", "left"),
    [
        ("null", "email", [None] * 4),
        ("null", "tags", [None] * 4),
        ("redact", "email", ["***", "***", None, "***"]),
        ("redact", "born", ["***", None, "***", "***"]),
        ("redact", "tags", ["***", None, "***", "***"]),
        ("last4", "phone", ["***4567", "***", "***", None]),
        ("email", "email", ["***@example.org", "***@shop.example", None, "***"]),
    ],
)
def test_masks(how: str, name: str, left: list[Any]) -> None:
    assert column(name, mask={name: how}) == left


def test_a_mask_shows_no_more_than_it_says() -> None:
    table = pa.table({"a": ["Jörg Müßig", "a@b@c.example", "x\ny@z.example", "@", "12345678"]})
    assert column("a", table, mask={"a": "last4"}) == ["***üßig", "***mple", "***mple", "***", "***5678"]
    assert column("a", table, mask={"a": "email"}) == ["***", "***@c.example", "***@z.example", "***@", "***"]


def test_a_masked_null_keeps_its_type() -> None:
    assert shaped(mask={"born": "null"}).schema.field("born").type == pa.date32()


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id > 2", [3, 4]),
        ("email = 'ann@example.org'", [1]),
        ("email <> 'ann@example.org'", [2, 4]),
        ("not email = 'ann@example.org'", [2, 4]),
        ("email is null", [3]),
        ("email not in ('ann@example.org', 'x')", [2, 4]),
        ("total > 1", [1, 2]),
        ("total >= 1.5", [1, 2]),
        ("total in (1.5, 20.0, 99999999999999.0)", [1, 2]),
        ("total < 99999999999999", [1, 2, 4]),
        ("born >= '1990-01-01' or id = 2", [1, 2, 3]),
        ("phone like '+49%'", [1]),
        ("id in (1, 99999999999999999999)", [1]),
        ("true", [1, 2, 3, 4]),
        ("false", []),
    ],
)
def test_where_lets_only_what_is_true_pass(where: str, ids: list[int]) -> None:
    assert column("id", where=where) == ids
    assert column("id", where=where, select=["id"]) == ids


@pytest.mark.parametrize(
    ("arrow", "values", "where", "kept"),
    [
        (pa.int16(), [1, 2, 32767], "a < 100000", [1, 2, 32767]),
        (pa.int16(), [1, 2, None], "a in (2, 100000)", [2]),
        (pa.uint64(), [1, 2**64 - 1], "a > 9223372036854775808", [2**64 - 1]),
        (pa.float32(), [0.5, float("nan"), None], "a is not nan", [0.5]),
        (pa.bool_(), [True, False, None], "a = true", [True]),
        (pa.large_string(), ["x", "y", None], "a <> 'x'", ["y"]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None], "a = 'x'", ["x"]),
        (pa.timestamp("s"), [0, 86400, None], "a >= '1970-01-02'", [86400]),
        (pa.timestamp("ms", "Asia/Tokyo"), [0, 1000], "a > '1970-01-01T00:00:00+00:00'", [1000]),
        (pa.time64("us"), [0, 3_600_000_000], "a = '01:00:00.000000'", [3_600_000_000]),
    ],
)
def test_where_compares_columns_of_any_width(
    arrow: pa.DataType, values: list[Any], where: str, kept: list[Any]
) -> None:
    table = pa.table({"a": pa.array(values, arrow)})
    assert shaped(table, where=where).column("a").to_pylist() == pa.array(kept, arrow).to_pylist()


def test_a_delete_always_passes() -> None:
    changes = pa.array(["upsert", "delete", "delete", "upsert"])
    table = PEOPLE.append_column("_change", changes)
    found = shaped(table, where="total > 1", hash=["id"], salt=SALT, select=["id"])
    assert found.column("_change").to_pylist() == ["upsert", "delete", "delete"]
    assert found.column("id").to_pylist() == [digest("1"), digest("2"), digest("3")]


def test_values_of_rows_that_do_not_pass_are_not_cast() -> None:
    assert column("phone", where="id = 2", cast={"phone": "int32"}) == [1234567]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("emial = 'x'", "Could not find field with name emial"),
        ("id = 1.5", "1.5 is not a whole number, and the column has whole numbers"),
        ("total > 1.555", "1.555 has more decimal places than decimal(12, 2)"),
        ("id >", "syntax error at character"),
        ("tags = 'a'", "cannot be used"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused(where: str, reason: str) -> None:
    with pytest.raises(StreamRefused) as refused:
        shaped(where=where)
    assert reason in refused.value.what


# ---------------------------------------------------------------- the reader


def test_the_reader_is_small_and_does_not_show_its_salt() -> None:
    made = reader(PEOPLE, Shape.model_validate({"hash": ["email"], "salt": SALT}))
    assert SALT not in repr(made)
    again = pickle.loads(pickle.dumps(made)).open(Part(0, "{}")).read_all()
    assert again.column("email")[0].as_py() == digest("ann@example.org")


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_letting_go_of_the_reader_lets_go_of_the_one_inside(rows: int) -> None:
    given = Given(PEOPLE.to_batches(max_chunksize=1), PEOPLE.schema)
    content = shaped_content(PEOPLE, Shape(drop=("tags",))).text
    opened = ShapedReader(given, "people", content).open(Part(0, "{}"))
    for _ in range(rows):
        opened.read_next_batch()
    assert given.ended == []
    opened.close()
    del opened
    assert given.ended == ([True] if rows else [])


def test_batches_without_rows_are_not_passed_on() -> None:
    opened = reader(PEOPLE, Shape(where="id > 3"), most=1).open(Part(0, "{}"))
    assert [batch.num_rows for batch in opened] == [1]


RULES: list[dict[str, Any]] = [
    {"where": "id > 100 and email is not null", "select": ["id", "email"], "hash": ["email"], "salt": SALT},
    {"cast": {"total": "text", "id": "int32", "paid": "decimal(12,2)"}, "on_error": "null", "rename": {"id": "n"}},
    {"mask": {"email": "email", "phone": "last4", "born": "redact", "tags": "null"}, "drop": ["paid"]},
    {"where": "born < '2000-01-01' or total > 5", "hash": {"phone": "sha256", "born": "sha256"}},
]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.none() | st.text(max_size=12),
        st.none() | st.text(max_size=12),
        st.none() | st.sampled_from(["1.5", "1.555", "x", "-3", ""]),
        st.none() | st.decimals(-99, 99, places=2),
        st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        st.none() | st.lists(st.none() | st.text(max_size=3), max_size=2),
    ),
    max_size=10,
)


@settings(deadline=None, max_examples=40)
@given(rows=ROWS, rules=st.sampled_from(RULES), most=st.integers(1, 7))
def test_it_does_not_matter_how_rows_are_cut_into_batches(rows: list[Any], rules: dict[str, Any], most: int) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * 7
    arrays = [pa.array(values, each.type) for values, each in zip(columns, PEOPLE.schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=PEOPLE.schema)
    whole = shaped(table, **rules)
    assert shaped(table, most=most, **rules).equals(whole)
    one_by_one = [shaped(table.slice(place, 1), **rules) for place in range(len(rows))]
    assert pa.concat_tables([whole.schema.empty_table(), *one_by_one]).equals(whole)


def test_decimals_of_many_digits_pass_through_a_filter() -> None:
    table = pa.table({"a": pa.array([Decimal("1" * 38), Decimal(5)], pa.decimal128(38, 0))})
    assert column("a", table, where=f"a > {'1' * 37}") == [Decimal("1" * 38)]
