"""Slices and their ids: the same everywhere, another as soon as anything differs; receipts and the chain's word."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from tests.core.strategies import contents, given, marks, slices

from penstock.core.content import Column, Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Receipt, Slice, Verdict, faults_of, following, verdict
from penstock.core.types import Plain

SOURCE = Path(__file__).parents[2] / "src"
FIRST = Slice(
    pipeline="shop",
    stream="public.orders",
    number=1,
    after=None,
    upto=Mark.of({"key": ["2024-05-01 10:00:00.000001+00", "42"]}),
    content=Content((Column("größe", Plain.STRING),), identity={"system": "7311"}).text,
    previous="",
)
#: written down once: an id that changes makes every sink and store out there disagree
GOLDEN = {
    "first": "2e15d33dad479ab837bbf61edde6158f2674dc35a4584b6ccd6034408175ec7f",
    "second": "ba058c2b889c03c7b48e63e3c3ca0586b6c9efafe5940fdfac800eb43206f793",
    "reset": "3643af58bbedbd64ba2081bbb19d9a8cea086899e07310a59cbae38356415ee1",
    "refresh": "67eed83b9c2585417568cea4bc36806927c7622b4cf37aea7bd4bf11f55adf2a",
    "rewind": "ebaa21c78ffb8333031acd6749c1c83873b1147f8c64aa4daf71ecabe0fd3f73",
}

#: what the golden ids are the ids of; runs in other interpreters too, so the core alone may be imported
CHAIN = """
from penstock.core.content import Column, Content
from penstock.core.marks import Mark
from penstock.core.slices import Kind, following
from penstock.core.types import Plain

content = Content((Column("gr\\u00f6\\u00dfe", Plain.STRING),), identity={"system": "7311"})
of = {"pipeline": "shop", "stream": "public.orders", "content": content}
first = following(None, upto=Mark.of({"key": ["2024-05-01 10:00:00.000001+00", "42"]}), **of)
second = following(first.position, upto=Mark.read('{ "n": 9007199254740993, "key": ["\\\\u00e9", null]}'), **of)
reset = following(second.position, upto=None, kind=Kind.RESET, **of)
refresh = following(reset.position, upto=Mark.of({"run": "1"}), kind=Kind.REFRESH, plan={"cuts": [1]}, **of)
rewind = following(refresh.position, upto=first.upto, kind=Kind.REWIND, **of)
ids = {"first": first.id, "second": second.id, "reset": reset.id, "refresh": refresh.id, "rewind": rewind.id}
"""


def interpreters() -> list[str]:
    """Every Python on this machine that penstock supports, this one first."""
    found = [sys.executable]
    homes = [Path(home) for home in (os.environ.get("PYENV_ROOT", ""), Path.home() / ".pyenv") if str(home)]
    for minor in ("3.11", "3.12", "3.13", "3.14"):
        found += [str(path) for home in homes for path in home.glob(f"versions/{minor}.*/bin/python{minor}")]
        if system := shutil.which(f"python{minor}", path="/usr/local/bin:/usr/bin"):
            found.append(system)
    return list(dict.fromkeys(found))


def golden() -> dict[str, str]:
    scope: dict[str, Any] = {}
    exec(CHAIN, scope)
    ids: dict[str, str] = scope["ids"]
    return ids


def test_ids_are_those_of_the_first_release() -> None:
    assert golden() == GOLDEN
    assert FIRST.id == GOLDEN["first"]


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
@pytest.mark.parametrize("python", interpreters())
def test_ids_are_the_same_in_every_process_and_python(python: str, seed: str) -> None:
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C"}
    script = CHAIN + "import json, sys; print(json.dumps([ids, sorted({'pyarrow', 'pyspark'} & set(sys.modules))]))"
    done = subprocess.run([python, "-S", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ids, heavy = json.loads(done.stdout)
    assert ids == GOLDEN
    assert heavy == []


@given(slices, slices)
def test_slices_that_differ_in_anything_hashed_have_different_ids(one: Slice, other: Slice) -> None:
    assert (one.id == other.id) == (one == other)


OTHER: dict[str, Any] = {
    "pipeline": "shop2",
    "stream": "public.order",
    "number": 2,
    "after": Mark.of({}),
    "upto": Mark.of({"key": ["2024-05-01 10:00:00.000001+00", "43"]}),
    "content": Content((Column("größe", Plain.STRING),), identity={"system": "7312"}).text,
    "previous": "ab",
    "kind": Kind.REFRESH,
    "spool": "cd",
}


@pytest.mark.parametrize("ingredient", sorted(OTHER))
def test_every_ingredient_changes_the_id(ingredient: str) -> None:
    assert dataclasses.replace(FIRST, **{ingredient: OTHER[ingredient]}).id != FIRST.id


def test_no_ingredient_was_forgotten() -> None:
    hashed = {each.name for each in dataclasses.fields(Slice)} - {"plan"}
    assert hashed == set(OTHER)


def test_only_rows_refreshes_and_repairs_move_anything() -> None:
    assert [kind for kind in Kind if kind.moves] == [Kind.ROWS, Kind.REFRESH, Kind.REPAIR]


@given(slices, marks)
def test_how_it_was_planned_does_not_change_the_id(slice_: Slice, plan: Mark) -> None:
    assert dataclasses.replace(slice_, plan=plan.text).id == slice_.id


@given(slices)
def test_the_beginning_is_not_an_empty_mark(slice_: Slice) -> None:
    ends = [
        dataclasses.replace(slice_, after=after, upto=upto) for after, upto in ((None, Mark("{}")), (Mark("{}"), None))
    ]
    assert len({end.id for end in ends}) == 2


@given(slices, contents, st.sampled_from(Kind))
def test_the_next_slice_begins_where_the_last_ended(last: Slice, content: Content, kind: Kind) -> None:
    mark = Mark.of({"next": "1"})
    follows = following(
        last.position, pipeline=last.pipeline, stream=last.stream, upto=mark, content=content, kind=kind
    )
    assert (follows.number, follows.after, follows.previous) == (last.number + 1, last.upto, last.id)
    assert follows.position == Position(last.number + 1, follows.id, mark, content.text)
    begins = following(None, pipeline="p", stream="s", upto=mark, content=content)
    assert (begins.number, begins.after, begins.previous) == (1, None, "")


# ---------------------------------------------------------------- the chain's word


@given(slices, slices)
def test_only_the_id_tells_that_the_work_is_in(slice_: Slice, other: Slice) -> None:
    assume(other.id not in (slice_.id, slice_.previous))
    assert verdict(slice_.position, slice_) is Verdict.IN
    assert verdict(other.position, slice_) is Verdict.OTHER
    higher = dataclasses.replace(slice_.position, number=slice_.number + 5, id="f" * 64)
    assert verdict(higher, slice_) is Verdict.OTHER


@given(slices)
def test_the_predecessor_lets_it_in(slice_: Slice) -> None:
    before = dataclasses.replace(slice_.position, number=slice_.number - 1, id=slice_.previous)
    assert verdict(before if slice_.previous else None, slice_) is Verdict.NEXT


@given(slices)
def test_an_empty_sink_takes_only_the_first(slice_: Slice) -> None:
    assert verdict(None, slice_) is (Verdict.OTHER if slice_.previous else Verdict.NEXT)


# ---------------------------------------------------------------- receipts


def receipt(part: int, *, read: int = 3, rows: int = 3, schema: str = "s") -> Receipt:
    return Receipt(part=part, attempt=f"a{part}", read=read, rows=rows, bytes=8, schema=schema, pieces="{}")


PARTS = [Part(index, "{}") for index in range(3)]


@given(st.permutations(range(3)))
def test_receipts_that_name_each_part_once_have_no_fault(order: list[int]) -> None:
    assert faults_of(PARTS, [receipt(part) for part in order]) is None


def test_nothing_to_move_has_no_fault() -> None:
    assert faults_of([], []) is None


@pytest.mark.parametrize(
    ("receipts", "fault"),
    [
        ([receipt(0), receipt(2)], "receipts name parts [0, 2], the slice has parts [0, 1, 2]"),
        (
            [receipt(0), receipt(1), receipt(1), receipt(2)],
            "receipts name parts [0, 1, 1, 2], the slice has parts [0, 1, 2]",
        ),
        ([receipt(0), receipt(1), receipt(1)], "receipts name parts [0, 1, 1], the slice has parts [0, 1, 2]"),
        ([receipt(0), receipt(1), receipt(3)], "receipts name parts [0, 1, 3], the slice has parts [0, 1, 2]"),
        ([], "receipts name parts [], the slice has parts [0, 1, 2]"),
        ([receipt(0), receipt(1, read=4), receipt(2)], "part 1 read 4 rows and staged 3"),
        ([receipt(0), receipt(1), receipt(2, rows=4)], "part 2 read 3 rows and staged 4"),
        ([receipt(0), receipt(1, schema="t"), receipt(2)], "parts were written with 2 different schemas"),
    ],
)
def test_receipts_that_do_not_add_up(receipts: list[Receipt], fault: str) -> None:
    assert faults_of(PARTS, receipts) == fault
