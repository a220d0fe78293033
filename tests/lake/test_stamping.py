"""Numbers for rows of others, where the table itself stands in the way."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.errors import StreamStopped
from penstock.lake.stamping import _store_column


def test_files_of_an_older_partitioning_are_not_written_down_under_the_new_one(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 3))
    lake.append(orders(1, 3))
    with lake.catalog().load_table("shop.orders").update_spec() as update:
        update.add_field("id", IdentityTransform(), "id")
    before = sorted(lake.catalog().load_table("shop.orders").scan().to_arrow()["id"].to_pylist())
    with pytest.raises(StreamStopped, match="older partitioning of the table") as stopped:
        lake.reader(adopt=True).ids()
    assert "rewrite_data_files" in stopped.value.next_step
    after: pa.Table = lake.catalog().load_table("shop.orders").scan().to_arrow()
    assert sorted(after["id"].to_pylist()) == before == [1, 2, 3]


@pytest.mark.parametrize("stored", [pa.binary(16), pa.uuid()])
def test_uuids_are_stored_as_they_were(stored: pa.DataType) -> None:
    ids = [uuid4(), None, uuid4()]
    travelling = pa.array([None if each is None else str(each) for each in ids])
    found = _store_column(travelling, stored)
    assert found.type == stored
    plain = found.storage if isinstance(found, pa.ExtensionArray) else found
    assert plain.to_pylist() == [None if each is None else each.bytes for each in ids]
