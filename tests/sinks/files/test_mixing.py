"""A folder shows readers slices or a full refresh, never both."""

from pathlib import Path

import pytest
from tests.sinks.files.folder import open_sink

from penstock.core.content import Content
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.ports import StreamInfo


def test_a_refresh_beside_slices(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    data = Path(sink.root, "orders")
    data.mkdir(parents=True)
    (data / "_SUCCESS").touch()
    sink.check(StreamInfo("orders", Kind.REFRESH), Content(()))
    (data / "00000001-a-000-0.parquet").touch()
    with pytest.raises(StreamRefused) as refused:
        sink.check(StreamInfo("orders", Kind.REFRESH), Content(()))
    assert refused.value.what == (
        f"the folder {data} holds other files (00000001-a-000-0.parquet), and a full refresh beside them "
        "would show readers both"
    )


def test_slices_beside_a_refresh(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    data = Path(sink.root, "orders")
    data.mkdir(parents=True)
    sink.check(StreamInfo("orders", Kind.ROWS), Content(()))
    (data / "current").symlink_to("somewhere")
    with pytest.raises(StreamRefused) as refused:
        sink.check(StreamInfo("orders", Kind.ROWS), Content(()))
    assert refused.value.what == (
        f"the folder {data} holds a full refresh (`current`), and slices beside it would show readers both"
    )
    assert "run `penstock state migrate FILE --stream orders`" in refused.value.next_step
