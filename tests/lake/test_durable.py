"""A commit's metadata is on the disk before the catalog names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from penstock.lake import names, tables
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions


def test_what_a_commit_writes_is_synced_and_so_are_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="shop")
    schema = Schema(NestedField(1, names.SEQ, LongType(), required=True))
    spec, order = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    tables.create_table(place, "t", schema, spec=spec, order=order, properties={names.HEAD: "0"})
    table = tables.load_table(place, "t")
    assert table is not None
    folder = tmp_path / "lake" / "shop" / "t" / "metadata"
    before, synced, sync = set(folder.iterdir()), set(), os.fsync

    def noted(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    tables.commit_snapshot(table, kind="landing", head=1)
    new = {str(path) for path in set(folder.iterdir()) - before}
    assert len(new) >= 2, new
    assert new | {str(folder)} <= synced
