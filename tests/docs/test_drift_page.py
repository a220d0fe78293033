"""The page on drift: its reader puts files with different columns together, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.docs.pages import TOP, blocks, section
from tests.docs.test_pages import load

from penstock.core.drift import POLICIES, QUARANTINE_COLUMN, ChangeKind
from penstock.core.types import Plain
from penstock.core.widening import widens

PAGE = TOP / "docs" / "drift.md"


def test_files_with_different_columns_are_read_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out" / "orders"
    folder.mkdir(parents=True)
    first = pa.table({"id": pa.array([1], pa.int32()), "gone": ["x"]})
    second = pa.table({"id": pa.array([2**40]), "gone": pa.nulls(1, pa.string()), "new": ["y"]})
    for number, table in enumerate((first, second)):
        pq.write_table(table, folder / f"0000000{number}.parquet")
    monkeypatch.chdir(tmp_path)
    (shown,) = blocks(PAGE, "python")
    found: dict[str, pa.Table] = {}
    exec(shown.text, found)  # what the page tells its readers to run
    assert found["rows"].to_pylist() == [
        {"id": 1, "gone": "x", "new": None},
        {"id": 2**40, "gone": None, "new": "y"},
    ]


def test_the_pipeline_file_has_every_policy(tmp_path: Path) -> None:
    (shown,) = blocks(PAGE, "yaml")
    (tmp_path / "shop.yaml").write_text(shown.text)
    streams = load(tmp_path / "shop.yaml").pipelines["shop"].streams
    assert sorted(stream.drift for stream in streams.values()) == sorted(POLICIES)


def test_every_policy_and_change_is_in_the_table() -> None:
    text = section(PAGE, "Each change, under each policy")
    head, _, *rows = [line.split(" | ") for line in text.strip().splitlines() if line.startswith("|")]
    assert re.findall(r"`(\w+)`", " ".join(head)) == list(POLICIES)
    changes = [row[0].removeprefix("| ") for row in rows]
    words = {
        ChangeKind.ADDED: "is added",
        ChangeKind.DROPPED: "is dropped",
        ChangeKind.WIDENED: "becomes wider",
        ChangeKind.NARROWED: "becomes narrower",
        ChangeKind.RETYPED: "any other change of type",
    }
    for way in ChangeKind:
        assert any(words[way] in change for change in changes), way
    assert f"`{QUARANTINE_COLUMN}`" in PAGE.read_text()


def test_the_examples_of_wider_are_wider() -> None:
    assert widens(Plain.INT32, Plain.FLOAT64)
    assert not widens(Plain.INT64, Plain.FLOAT64)
    assert not widens(Plain.DATE, Plain.TIMESTAMP)
