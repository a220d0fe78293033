"""The page on shaping: its example is carried out, and its tables name every type, rule and mask that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from tests.docs.pages import TOP, blocks, first_cells, section
from tests.docs.test_walks import Walk

from penstock.shaping.options import MIN_SALT_CHARACTERS, Hashing, Masking, Shape
from penstock.shaping.types import CASTS, TYPES

PAGE = TOP / "docs" / "shaping.md"


def test_the_page_is_carried_out(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALT", "a secret of some length")
    walk = Walk(tmp_path, database)
    said = "".join(walk.follow(block) for block in blocks(PAGE)).strip()
    assert f"prints `{said}`" in PAGE.read_text()


def test_every_rule_type_and_mask_is_named() -> None:
    text = PAGE.read_text()
    for name in (*Shape.model_fields, *TYPES, *get_args(Hashing)):
        assert re.search(rf"`[^`]*{re.escape(name)}[^`]*`", text) or name == "hmac-sha256", name
    assert first_cells(section(PAGE, "mask")) == [f"`{how}`" for how in get_args(Masking)]
    assert f"at least {MIN_SALT_CHARACTERS} characters" in text
    named = section(PAGE, "cast").split("|")
    for type_ in {type_ for types in CASTS.values() for type_ in types}:
        assert any(type_.partition("(")[0] in cell or type_.startswith("int") for cell in named), type_
