"""Remarks on columns that are strings in a sink."""

from __future__ import annotations

import pytest

from penstock.core.content import Column, Content
from penstock.core.types import Plain
from penstock.shaping.sink_remarks import explain_strings


@pytest.mark.parametrize("origin", ["text", "TEXT", "VARCHAR(20)", "character varying(20)", None])
def test_strings_of_the_source_are_not_remarked_on(origin: str | None) -> None:
    assert explain_strings(Content((Column("note", Plain.STRING, origin=origin),))) == []


def test_other_types_are_named() -> None:
    content = Content((Column("took", Plain.STRING, origin="interval"), Column("id", Plain.INT64, origin="bigint")))
    (remark,) = explain_strings(content)
    assert (remark.kind, remark.text) == ("gap", "strings here, of another type at the source: took (interval)")
