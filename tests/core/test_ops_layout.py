"""The declared fields of a stream of ops."""

from __future__ import annotations

import pytest

from penstock.core.content import Column, Content
from penstock.core.ops import FEED_COLUMNS, FanOut, Layout
from penstock.core.types import Plain

LAYOUT = Layout(
    key=(Column("id", Plain.INT64),),
    scalars=(Column("url", Plain.STRING), Column("post_id", Plain.INT64), Column("post_title", Plain.STRING)),
    multi=(Column("tags", Plain.INT64),),
    fan_outs=(FanOut("public.posts", ("post_id",), ("post_title",)),),
)


def test_a_layout_comes_back_from_the_content_that_carries_it() -> None:
    content = Content(FEED_COLUMNS, key=("id",), entities=LAYOUT.document())
    entities = Content.parse(content.text).entities
    assert entities is not None
    assert Layout.of(entities) == LAYOUT
    assert content.fingerprint != Content(FEED_COLUMNS, key=("id",)).fingerprint


def test_the_reference_fold_knows_its_fields() -> None:
    assert LAYOUT.shape.scalars == {"url", "post_id", "post_title"}
    assert LAYOUT.shape.multi == {"tags"}


def test_a_field_is_declared_once() -> None:
    with pytest.raises(ValueError, match="field 'id' is declared twice"):
        Layout(key=(Column("id", Plain.INT64),), scalars=(Column("id", Plain.INT64),))
    with pytest.raises(ValueError, match="key column"):
        Layout(key=())
