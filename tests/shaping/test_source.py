"""A shaped source: what it says of its streams, what it refuses, and what the source inside gets to see."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.harness.doubles import FIND_TESTS
from tests.shaping.shapes import PEOPLE, SALT, Given, content_of

from penstock.core.content import Column, Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Slice, following
from penstock.core.types import Decimal, Plain
from penstock.errors import InputError, StreamRefused
from penstock.links.arrow_types import arrow_type
from penstock.links.spark.frame import frame_schema, job, read_parts
from penstock.ports import (
    Budget,
    DiscoveredStream,
    Discovering,
    Estimating,
    ExplainingSource,
    Gathering,
    Planned,
    Preparing,
    Reading,
    Releasing,
    Remaining,
    Remark,
    Resuming,
    Rewinding,
    StreamInfo,
    capability,
    discover,
    estimate,
    explain_source,
    find_mark,
    has_capability,
)
from penstock.shaping.options import Shape
from penstock.shaping.resolved_shape import remove_shape
from penstock.shaping.source import ShapedSource

ALL = Budget(bytes=1 << 30)


class People:
    """A source of one table that insists on getting back what it said."""

    def __init__(self, table: pa.Table = PEOPLE, key: Sequence[str] = ("id",)) -> None:
        self.table, self.key = table, tuple(key)
        self.seen: list[str] = []

    def same(self, what: str, content: Content) -> None:
        assert content == content_of(self.table.schema), what
        self.seen.append(what)

    def connect(self) -> None:
        return None

    def catalog(self) -> Sequence[StreamInfo]:
        return [StreamInfo(name, Kind.ROWS, self.key, ("born", "id")) for name in ("people", "others")]

    def discover(self) -> Sequence[DiscoveredStream]:
        return []

    def content(self, stream: str) -> Content:
        return content_of(self.table.schema)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        self.same("accept", content)
        self.same("accept", Content.parse(last.content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        self.same("prepare", content)
        if last:
            self.same("prepare", Content.parse(last.content))
        return ["prepared"]

    def advanced(self, stream: str, position: Position) -> None:
        self.same("advanced", Content.parse(position.content))

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        self.same("ceiling", content)
        return {"rows": self.table.num_rows}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        self.same("plan", content)
        return Planned(Mark.of({"all": True}), rows=self.table.num_rows) if after is None else None

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        self.same("remaining", content)
        return Remaining(self.table.num_rows if after is None else 0, exact=True)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        self.same("explain", content)
        return [Remark("guarantee", "it is all there")]

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        self.same("reading", Content.parse(slice_.content))
        yield Reading(Given(self.table.to_batches(), self.table.schema), [Part(0, "{}")], changed=["a line"])

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        self.same("mark_at", content)
        if last:
            self.same("mark_at", Content.parse(last.content))
        return None

    def describe(self, mark: Mark | None) -> str:
        return "described"

    def close(self) -> None:
        self.seen.append("close")


def shaped(inside: People | None = None, **rules: Any) -> ShapedSource:
    return ShapedSource(inside or People(), {"people": Shape.model_validate(rules)} if rules else {})


def slice_of(source: ShapedSource, stream: str = "people") -> Slice:
    content = source.content(stream)
    return following(None, pipeline="p", stream=stream, upto=Mark.of({"all": True}), content=content)


def rows(source: ShapedSource, slice_: Slice) -> pa.Table:
    with source.reading(slice_) as reading:
        assert reading.changed == ["a line"]
        return reading.reader.open(reading.parts[0]).read_all()


def remarks(source: ShapedSource) -> list[str]:
    return [f"{each.kind}: {each.text}" for each in source.explain("people", source.content("people"))]


# ---------------------------------------------------------------- content


def test_a_content_lists_what_is_delivered_and_keeps_what_is_read() -> None:
    source = shaped(select=["total", "email"], rename={"email": "mail"}, hash=["email"], salt=SALT)
    content = source.content("people")
    assert content.columns == (
        Column("total", Decimal(12, 2), "my decimal128(12, 2)"),
        Column("mail", Plain.STRING),
    )
    assert content.identity == {"source": "here"}
    assert remove_shape(content) == content_of(PEOPLE.schema)
    assert SALT not in content.text


def test_a_cast_and_a_mask_say_their_type() -> None:
    source = shaped(cast={"paid": "decimal(12,2)"}, mask={"born": "null", "tags": "redact"})
    types = {column.name: (column.origin, str(column.type)) for column in source.content("people").columns}
    assert types["paid"] == (None, "decimal(12,2)")
    assert types["born"] == ("my date32[day]", "date")
    assert types["tags"] == (None, "string")


def test_a_stream_without_a_shape_is_as_it_was() -> None:
    source = shaped(drop=["tags"])
    assert source.content("others") == content_of(PEOPLE.schema)
    assert rows(source, slice_of(source, "others")).equals(PEOPLE)


def test_the_source_inside_gets_back_its_own_content_everywhere() -> None:
    inside = People()
    source = shaped(inside, where="id > 1", drop=["tags"], rename={"id": "n"})
    slice_ = slice_of(source)
    content, last = source.content("people"), slice_.position
    source.connect()
    source.accept("people", last, content)
    assert source.prepare("people", content, last) == ["prepared"]
    ceiling = source.ceiling("people", content, "run", last.mark)
    assert ceiling is not None
    source.plan("people", content, None, ceiling, ALL)
    source.remaining("people", content, None, ceiling)
    source.explain("people", content)
    source.mark_at("people", content, last, "0")
    source.advanced("people", last)
    assert rows(source, slice_).column_names == ["n", "email", "phone", "paid", "total", "born"]
    assert source.describe(None) == "described"
    source.close()
    methods = {
        "accept",
        "prepare",
        "ceiling",
        "plan",
        "remaining",
        "explain",
        "mark_at",
        "advanced",
        "reading",
        "close",
    }
    assert set(inside.seen) == methods


def test_a_slice_is_read_as_it_was_begun_whatever_is_configured_now() -> None:
    before = shaped(select=["id", "email"], where="id < 3", mask={"email": "redact"})
    slice_ = slice_of(before)
    wanted = rows(before, slice_)
    for now in (shaped(), shaped(drop=["email"]), shaped(where="id = 4", select=["id"], rename={"id": "other"})):
        assert rows(now, slice_).equals(wanted)
    without = slice_of(shaped())
    assert rows(before, without).equals(PEOPLE)


@pytest.mark.parametrize("changes", [False, True])
def test_a_frame_for_the_user_s_own_job_has_the_shape(changes: bool) -> None:
    """As `penstock.read` does it, without a JVM."""
    source = shaped(where="id < 3", select=["id", "email"], hash=["email"], salt=SALT, rename={"id": "n"})
    slice_ = slice_of(source)
    columns = source.content("people").columns
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    with source.reading(slice_) as reading:
        work = job([reading], frame_schema(schema, changes=changes), changes=changes)
    batches = read_parts(pickle.dumps(work), [pa.RecordBatch.from_pydict({"id": [0]})])
    found = pa.Table.from_batches(list(batches))
    assert found.column_names == ["n", "email"] + ["_change"] * changes
    assert found.select(["n", "email"]).equals(rows(source, slice_))


# ---------------------------------------------------------------- the salt


def test_a_slice_needs_the_salt_that_it_was_begun_with() -> None:
    begun = shaped(hash=["email"], salt=SALT)
    slice_ = slice_of(begun)
    for now, told in ((shaped(hash=["email"], salt=SALT + "!"), "another `salt`"), (shaped(), "there is none now")):
        with pytest.raises(StreamRefused, match=told) as refused:
            rows(now, slice_)
        with pytest.raises(StreamRefused, match=told):
            now.check_open_slice(slice_)
        assert "restore the salt that it was begun with" in refused.value.next_step
        assert SALT not in str(refused.value)
    begun.check_open_slice(slice_)
    assert rows(begun, slice_).equals(rows(shaped(hash=["email", "id"], salt=SALT), slice_))


def test_another_salt_is_another_content_and_is_told_until_a_slice_has_it() -> None:
    one, two = shaped(hash=["email"], salt=SALT), shaped(hash=["email"], salt=SALT + "!")
    last = slice_of(one).position
    content = two.content("people")
    assert content.text != last.content
    [_, told] = two.prepare("people", content, last)
    assert "the salt has changed" in told
    assert one.prepare("people", one.content("people"), last) == ["prepared"]
    assert two.prepare("people", content, slice_of(two).position) == ["prepared"]
    assert two.prepare("people", content, slice_of(shaped()).position) == ["prepared"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("rules", "what", "step"),
    [
        (
            {"select": ["emial"]},
            "`select` names emial, which is not a column of the source; did you mean 'email'?",
            "`select`",
        ),
        (
            {"drop": ["zzz"]},
            "`drop` names zzz, which is not a column of the source",
            "source has: id, email, phone",
        ),
        ({"cast": {"zzz": "text"}}, "`cast` names zzz, which is not a column", "`cast`"),
        ({"hash": {"zzz": "sha256"}}, "`hash` names zzz, which is not a column", "`hash`"),
        ({"mask": {"zzz": "null"}}, "`mask` names zzz, which is not a column", "`mask`"),
        ({"rename": {"zzz": "a"}}, "`rename` names zzz, which is not a column", "`rename`"),
        (
            {"rename": {"id": "key"}, "cast": {"key": "text"}},
            "`cast` names key, which the source calls id",
            "write id: rules name columns as the source does, and `rename` comes last",
        ),
        ({"mask": {"_change": "null"}}, "`mask` names _change, one of penstock's own columns", "remove it from `mask`"),
        (
            {"rename": {"id": "email"}},
            "`rename` gives id the name email, which another column has",
            "give it another name, or rename or `drop` email too",
        ),
        (
            {"rename": {"tags": "id"}},
            "`rename` gives tags the name id, which another column has",
            "give it another name, or rename or `drop` id too",
        ),
        (
            {"cast": {"born": "int32"}},
            "born cannot be cast to int32: it is date",
            "cast it to date, timestamp, timestamptz, text",
        ),
        ({"cast": {"tags": "text"}}, "tags cannot be cast to text: it is list<", "deliver it as it is, or `drop` it"),
        ({"hash": {"tags": "sha256"}}, "tags cannot be hashed: it is list<", "mask: {tags: redact}"),
        (
            {"mask": {"total": "last4"}},
            "total cannot be masked by `last4`: it is decimal(12,2), and `last4` is for text",
            "use `redact` or `null`, or cast it first: cast: {total: text}",
        ),
        ({"drop": PEOPLE.column_names}, "no column is delivered", "remove one from `drop`"),
    ],
)
def test_a_shape_that_does_not_fit_the_columns_is_refused(rules: dict[str, Any], what: str, step: str) -> None:
    with pytest.raises(StreamRefused) as refused:
        shaped(**rules).content("people")
    assert what in refused.value.what
    assert step in refused.value.next_step
    assert refused.value.stream == "people"


def test_what_was_cast_to_text_can_be_masked_as_text() -> None:
    assert shaped(cast={"total": "text"}, mask={"total": "last4"}).content("people").columns


def test_a_filter_that_cannot_be_used_is_refused_where_there_is_something_to_read() -> None:
    source = shaped(where="emial = 'x'")
    content = source.content("people")
    for ask in (
        lambda: source.plan("people", content, None, {"rows": 4}, ALL),
        lambda: source.prepare("people", content, None),
        lambda: source.explain("people", content),
    ):
        with pytest.raises(StreamRefused, match="emial") as refused:
            ask()
        assert refused.value.stream == "people"
    assert source.plan("people", content, Mark.of({"all": True}), {"rows": 4}, ALL) is None


# ---------------------------------------------------------------- keys and words


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ({"drop": ["tags"]}, ("id",)),
        ({"rename": {"id": "customer_id"}}, ("customer_id",)),
        ({"hash": ["id"], "salt": SALT}, ("id",)),
        ({"cast": {"id": "text"}}, ("id",)),
        ({"cast": {"id": "int32"}}, ("id",)),
        ({"cast": {"id": "int32"}, "on_error": "null"}, ()),
        ({"mask": {"id": "redact"}}, ()),
        ({"drop": ["id"]}, ()),
        ({"select": ["email"]}, ()),
    ],
)
def test_the_key_is_what_still_identifies_a_row(rules: dict[str, Any], key: tuple[str, ...]) -> None:
    source = shaped(**rules)
    people, others = source.catalog()
    assert people.primary_key == key
    assert others.primary_key == ("id",)
    lost = [text for text in remarks(source) if "primary key (id) is not delivered unchanged" in text]
    assert bool(lost) == (key == ())


def test_a_text_that_is_cast_may_merge_keys() -> None:
    for type_, key in (("int32", ()), ("binary", ("phone",))):
        source = shaped(People(key=("phone",)), cast={"phone": type_})
        assert source.catalog()[0].primary_key == key


def test_a_table_without_a_key_has_none_to_lose() -> None:
    assert not [text for text in remarks(shaped(People(key=()), drop=["id"])) if "primary key" in text]


def test_the_order_is_shown_by_the_names_that_are_delivered() -> None:
    people, others = shaped(rename={"born": "birthday"}, drop=["id"]).catalog()
    assert people.order == ("birthday", "id")
    assert others.order == ("born", "id")


def test_a_shape_is_explained() -> None:
    source = shaped(
        where="id > 0",
        hash={"email": "hmac-sha256", "id": "sha256"},
        salt=SALT,
        mask={"phone": "last4"},
        cast={"paid": "double"},
        on_error="null",
    )
    assert remarks(source) == [
        "guarantee: it is all there",
        "guarantee: of email only a digest is delivered, and guessing a value requires the salt",
        "gap: of id only a digest is delivered, but anyone can check a guess against it; `hmac-sha256` with a `salt` "
        "prevents that",
        "guarantee: of phone only the last four characters are delivered",
        "gap: rows that do not meet `where` of the shape are not delivered; a row that stops meeting it after an "
        "update keeps its last delivered version",
        "gap: values of paid that their new type cannot hold are delivered as NULL",
    ]


def test_how_many_rows_a_filter_lets_through_is_not_known_before() -> None:
    source = shaped(where="id > 1")
    content = source.content("people")
    planned = source.plan("people", content, None, {"rows": 4}, ALL)
    assert planned is not None
    assert planned.rows is None
    assert source.remaining("people", content, None, {"rows": 4}) == Remaining(4, exact=False)
    assert source.remaining("people", content, Mark.of({"all": True}), {"rows": 4}) == Remaining(0, exact=True)


LOOK = (
    FIND_TESTS
    + """
import sys
from penstock.core.marks import Mark
from penstock.ports import Budget
from penstock.shaping.options import Shape
from penstock.shaping.source import ShapedSource
from tests.harness.doubles import MemorySource, Rows

rows = Rows()
rows.arrive(1)
rules = {"where": "key > 1", "cast": {"key": "text"}, "hash": {"version": "sha256"}, "rename": {"key": "k"}}
source = ShapedSource(MemorySource({"a": rows}), {"a": Shape.model_validate(rules)})
source.catalog()
content = source.content("a")
here = Mark.of({"place": 1})
ceiling = source.ceiling("a", content, "run", here)
assert source.plan("a", content, here, ceiling, Budget(1)) is None
print(sorted({"pyarrow", "pyiceberg", "numpy"} & set(sys.modules)))
"""
)


def test_a_look_that_finds_nothing_new_does_not_load_what_only_rows_need() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------- capabilities

EVERY = (Discovering, Estimating, ExplainingSource, Gathering, Preparing, Releasing, Resuming, Rewinding)


class Narrow:
    """A source with the methods of its port and no others."""

    def __init__(self) -> None:
        self.people = People()

    def __getattr__(self, name: str) -> Any:
        if name in ("connect", "catalog", "content", "accept", "ceiling", "plan", "reading", "describe", "close"):
            return getattr(self.people, name)
        raise AttributeError(name)


def test_a_wrapped_source_can_do_what_the_one_inside_can() -> None:
    for inside, able in ((People(), set(EVERY) - {Gathering, Resuming}), (Narrow(), set())):
        for wrapped in (ShapedSource(inside), ShapedSource(inside, {})):
            assert {each for each in EVERY if has_capability(wrapped, each)} == able
            assert {each for each in EVERY if capability(wrapped, each) is wrapped} == able


def test_a_shape_has_something_to_explain_and_to_check_around_any_source() -> None:
    source = ShapedSource(Narrow(), {"people": Shape.model_validate({"where": "id > 1"})})
    assert {each for each in EVERY if has_capability(source, each)} == {ExplainingSource, Preparing, Resuming}
    content = source.content("people")
    assert list(source.prepare("people", content, None)) == []
    assert explain_source(source, "people", content)


def test_what_a_source_cannot_do_is_refused_with_the_way_out() -> None:
    source = ShapedSource(Narrow())
    content = source.content("people")
    with pytest.raises(InputError, match="cannot list"):
        discover(source)
    with pytest.raises(StreamRefused, match="cannot go back") as refused:
        find_mark(source, "people", content, None, "1")
    assert "state reset" in refused.value.next_step
    assert estimate(source, "people", content, None, {}) == Remaining(None)
    assert list(explain_source(source, "people", content)) == []
