"""A table that is altered while a slice of it is open, between two tries or two parts: nothing is lost silently."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from tests.sources.tables import execute, source

from penstock.core.marks import Position
from penstock.core.slices import Slice, following
from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.ports import Budget, Reading
from penstock.sources.postgres import PostgresSource

#: rows said to be large make parts of a few of them
PARTS = Budget(bytes=1 << 30, row_bytes=float(1 << 20), workers=2)
TABLE = """
CREATE TABLE t (
    id integer PRIMARY KEY, n integer, big bigint, price numeric(12,2), word varchar(10), at timestamp, note text
);
INSERT INTO t SELECT g, g * 2, g * 3, g / 4.0, 'w' || g, timestamp '2026-01-01' + g * interval '1 s', 'note ' || g
    FROM generate_series(1, 40) g
"""


@dataclass
class Open:
    """A slice of rows 41 to 80 that is open, in several parts."""

    url: str
    slice: Slice
    options: dict[str, Any]

    def source(self) -> PostgresSource:
        return source(self.url, {"t": self.options})

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self.source().reading(self.slice) as reading:
            yield reading

    def read(self) -> pa.Table:
        """The slice's rows, as a worker reads them."""
        with self.reading() as reading:
            reader = pickle.loads(pickle.dumps(reading.reader))
            return pa.concat_tables([reader.open(part).read_all() for part in reading.parts]).sort_by("id")

    def changed(self) -> list[str]:
        with self.reading() as reading:
            return list(reading.changed)

    def refused(self) -> StreamRefused:
        with pytest.raises(StreamRefused) as refused, self.reading():
            pass
        return refused.value


def planned(origin: PostgresSource, last: Position | None, run: str) -> list[Slice]:
    content = origin.content("t")
    found: list[Slice] = []
    ceiling = origin.ceiling("t", content, run, last.mark if last else None)
    while ceiling and (next_ := origin.plan("t", content, last.mark if last else None, ceiling, PARTS)):
        found.append(
            following(
                last,
                pipeline="shop",
                stream="t",
                upto=next_.upto,
                content=content,
                kind=next_.kind,
                plan=next_.plan,
            )
        )
        last = found[-1].position
    return found


@pytest.fixture(params=["keyset", "refresh"])
def opened(request: pytest.FixtureRequest, database: str) -> Open:
    options = {"cursor": "id", "unique": True} if request.param == "keyset" else {}
    execute(database, TABLE)
    origin = source(database, {"t": options})
    before = planned(origin, None, "one") if options else []
    execute(
        database,
        "INSERT INTO t SELECT g, g * 2, g * 3, g / 4.0, 'w' || g, timestamp '2026-01-01' + g * interval '1 s', "
        "'note ' || g FROM generate_series(41, 80) g",
    )
    (slice_,) = planned(origin, before[-1].position if before else None, "two")
    return Open(database, slice_, options)


@pytest.fixture
def keyset(database: str) -> Open:
    execute(database, TABLE.replace("(1, 40)", "(1, 80)"))
    options = {"cursor": "id", "unique": True, "first_load": "cursor"}
    (slice_,) = planned(source(database, {"t": options}), None, "one")
    return Open(database, slice_, options)


def test_a_column_that_is_gone_is_null(opened: Open) -> None:
    before = opened.read()
    execute(opened.url, "ALTER TABLE t DROP price, DROP note")
    after = opened.read()
    assert after.schema == before.schema
    assert (after.column("price").null_count, after.column("note").null_count) == (len(after), len(after))
    assert after.drop_columns(["price", "note"]).equals(before.drop_columns(["price", "note"]))
    assert opened.changed() == [
        "column price (numeric(12,2)) was dropped: it is NULL in this slice",
        "column note (text) was dropped: it is NULL in this slice",
    ]


def test_what_is_not_read_may_change(keyset: Open) -> None:
    before = keyset.read()
    execute(keyset.url, "ALTER TABLE t ADD more int DEFAULT 5, ALTER word TYPE text, ALTER at TYPE timestamp(6)")
    assert keyset.read().equals(before)
    assert keyset.changed() == [], "it arrives as it did"


@pytest.mark.parametrize(
    ("column", "type_", "was"),
    [
        ("n", "bigint", "integer"),
        ("n", "numeric(12,0)", "integer"),
        ("big", "integer", "bigint"),
        ("price", "numeric(20,4)", "numeric(12,2)"),
        ("id", "bigint", "integer"),
    ],
)
def test_a_type_that_became_wider_or_narrower_is_cast_exactly(keyset: Open, column: str, type_: str, was: str) -> None:
    before = keyset.read()
    execute(keyset.url, f"ALTER TABLE t ALTER {column} TYPE {type_}")
    assert keyset.read().equals(before)
    assert keyset.changed() == [f"column {column} was {was} and is {type_} now: it is {was} in this slice"]


def test_a_text_that_became_something_else_is_still_its_text(keyset: Open) -> None:
    execute(keyset.url, "UPDATE t SET word = id::text")
    before = keyset.read()
    execute(keyset.url, "ALTER TABLE t ALTER word TYPE integer USING word::int")
    assert keyset.read().equals(before)
    assert keyset.changed() == [
        "column word was character varying(10) and is integer now: it is character varying(10) in this slice"
    ]


@pytest.mark.parametrize(
    ("statement", "example"),
    [
        ("ALTER TABLE t ALTER n TYPE bigint; UPDATE t SET n = 5000000000 WHERE id = 60", "5000000000"),
        ("ALTER TABLE t ALTER price TYPE numeric(20,4); UPDATE t SET price = 1.2345 WHERE id = 60", "1.2345"),
    ],
)
def test_a_value_that_does_not_fit_fails(keyset: Open, statement: str, example: str) -> None:
    execute(keyset.url, statement)
    with pytest.raises(StreamFailed) as failed:
        keyset.read()
    assert f"1 of its values do not fit, such as {example}" in failed.value.what
    assert "penstock state recover FILE" in failed.value.next_step


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE t ALTER n TYPE text", "n of public.t was integer and is text now"),
        ("ALTER TABLE t ALTER n TYPE double precision", None),
        (
            "ALTER TABLE t ALTER at TYPE timestamptz",
            "at of public.t was timestamp without time zone and is timestamp with time zone now",
        ),
        (
            "ALTER TABLE t RENAME note TO remark",
            "it reads note of public.t, which was dropped (perhaps it was renamed to remark)",
        ),
        (
            "ALTER TABLE t DROP n; ALTER TABLE t ADD n text",
            "n of public.t was integer and is text now",
        ),
    ],
)
def test_what_cannot_be_had_without_loss_is_refused(keyset: Open, statement: str, what: str | None) -> None:
    execute(keyset.url, statement)
    if what is None:
        assert len(keyset.changed()) == 1, "every integer is a double"
        return
    error = keyset.refused()
    assert error.what == f"an open slice was planned differently: {what}"
    assert "so that the slice can be finished; or drop it with `penstock state recover FILE --stream t`" in (
        error.next_step
    )


def test_a_key_must_stay_comparable(keyset: Open) -> None:
    execute(keyset.url, "ALTER TABLE t ALTER id TYPE text")
    assert keyset.refused().what.endswith("id of public.t was integer and is text now")
    execute(keyset.url, "ALTER TABLE t RENAME id TO key")
    assert "it reads id of public.t, which was dropped" in keyset.refused().what


def test_a_slice_without_any_of_its_columns_is_refused(database: str) -> None:
    execute(database, TABLE)
    options = {"cursor": "id", "unique": True, "columns": ["price"]}
    last = planned(source(database, {"t": options}), None, "one")[-1]
    opened = Open(database, last, options)
    execute(database, "ALTER TABLE t DROP price")
    assert opened.refused().what.endswith("it reads price of public.t, which was dropped")


# ---------------------------------------------------------------- between two parts


def test_a_column_dropped_between_two_parts_fails_and_the_next_run_finishes(keyset: Open) -> None:
    before = keyset.read()
    with keyset.reading() as reading:
        first, second, *_ = reading.parts
        assert reading.reader.open(first).read_all().column("note").null_count == 0
        execute(keyset.url, "ALTER TABLE t DROP note")
        with pytest.raises(PenstockError) as failed:
            reading.reader.open(second).read_all()
        assert isinstance(failed.value, StreamRefused)
        assert 'column "note" does not exist' in failed.value.what
        assert "run again" in failed.value.next_step
    after = keyset.read()
    assert after.column("note").null_count == len(after) == len(before), "the whole slice is read again"
    assert after.drop_columns(["note"]).equals(before.drop_columns(["note"]))


def test_a_column_added_between_two_parts_does_no_harm(keyset: Open) -> None:
    before = keyset.read()
    with keyset.reading() as reading:
        tables = []
        for number, part in enumerate(reading.parts):
            tables.append(reading.reader.open(part).read_all())
            execute(keyset.url, f"ALTER TABLE t ADD more{number} int DEFAULT 7")
    assert pa.concat_tables(tables).sort_by("id").equals(before)


@pytest.mark.parametrize("type_", ["bigint", "text", "double precision"])
def test_a_type_changed_between_two_parts_fails_and_the_next_run_decides(keyset: Open, type_: str) -> None:
    before = keyset.read()
    with keyset.reading() as reading:
        first, second, *_ = reading.parts
        reading.reader.open(first).read_all()
        execute(keyset.url, f"ALTER TABLE t ALTER n TYPE {type_}")
        with pytest.raises(PenstockError, match="has changed while it was read: n comes as"):
            reading.reader.open(second).read_all()
    if type_ == "text":
        assert "n of public.t was integer and is text now" in keyset.refused().what
    else:
        assert keyset.read().equals(before)
