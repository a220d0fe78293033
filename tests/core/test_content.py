"""Contents: one canonical form, which is read back, and of which only the current version is read."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.core.strategies import contents, given

from penstock.core.content import FORMAT, Column, Content, Drift, OtherFormat
from penstock.core.documents import canonical, digest
from penstock.core.types import Plain, parse_type

ONE = Content(
    (Column("id", Plain.INT64, "bigint"), Column("mail", Plain.STRING, "public.email", "text")),
    key=("id",),
    identity={"table": "public.people"},
)


@given(contents)
def test_a_content_is_read_back_from_its_canonical_form(content: Content) -> None:
    found = Content.parse(content.text)
    assert found == content
    assert found.text == content.text == canonical(json.loads(content.text))


@given(contents, contents)
def test_two_contents_have_two_fingerprints(one: Content, other: Content) -> None:
    assert (one.fingerprint == other.fingerprint) == (one == other)
    assert one.fingerprint == digest(one.text)


@given(contents)
def test_a_content_travels_to_a_worker(content: Content) -> None:
    assert pickle.loads(pickle.dumps(content)) == content


def test_the_canonical_form() -> None:
    assert json.loads(ONE.text) == {
        "format": FORMAT,
        "columns": [
            {"name": "id", "type": "int64", "origin": "bigint"},
            {"name": "mail", "type": "string", "origin": "public.email", "base": "text"},
        ],
        "changes": False,
        "key": ["id"],
        "filter": None,
        "identity": {"table": "public.people"},
        "private": {},
    }


OTHER: dict[str, Any] = {
    "columns": (Column("id", Plain.INT32, "bigint"), ONE.columns[1]),
    "changes": True,
    "key": (),
    "filter": "id > 1",
    "identity": {"table": "public.others"},
    "private": {"mode": "keyset"},
    "shape": {},
    "drift": Drift(ONE.columns),
    "entities": {"key": []},
}


@pytest.mark.parametrize("ingredient", [each.name for each in fields(Content)])
def test_every_ingredient_changes_the_fingerprint(ingredient: str) -> None:
    assert replace(ONE, **{ingredient: OTHER[ingredient]}).fingerprint != ONE.fingerprint


@pytest.mark.parametrize("format_", [None, 1, FORMAT + 1, str(FORMAT)])
def test_another_version_of_the_form_is_not_read(format_: Any) -> None:
    document = json.loads(ONE.text) | {"format": format_}
    if format_ is None:
        del document["format"]
    with pytest.raises(OtherFormat, match=f"this penstock reads {FORMAT}"):
        Content.parse(canonical(document))


@pytest.mark.parametrize("missing", ["columns", "changes", "key", "filter", "identity", "private"])
def test_a_damaged_content_is_not_read(missing: str) -> None:
    document = {key: value for key, value in json.loads(ONE.text).items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        Content.parse(canonical(document))


def test_what_the_source_gives_is_kept_beside_the_columns_of_the_sink() -> None:
    landed = (*ONE.columns, Column("gone", parse_type("list<string>")))
    drifted = replace(ONE, columns=landed, drift=Drift(ONE.columns, ("mail",)))
    assert (drifted.reads, drifted.quarantined, drifted.names) == (ONE.columns, ("mail",), ("id", "mail", "gone"))
    assert drifted.undrifted == ONE
    assert ONE.undrifted is ONE
    assert (ONE.reads, ONE.quarantined) == (ONE.columns, ())


def test_a_type_is_described_in_the_words_of_the_source() -> None:
    assert [column.described for column in ONE.columns] == ["bigint", "public.email"]
    assert Column("n", parse_type("decimal(12,2)")).described == "decimal(12,2)"
