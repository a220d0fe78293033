"""Streams that have lost columns: what files keep of them, and what cannot go on without."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.contents import content

from penstock.core.drift import follow_drift
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.ports import Context, NoProbe, StreamInfo
from penstock.sinks.files import FilesSink, Options, StreamOptions, build

BEFORE = content(id="int64", at="date")
NOW = content(id="int64", day="date")


def sink(folder: Path, **stream: object) -> FilesSink:
    options = {"orders": StreamOptions.model_validate(stream)}
    return build(Options(directory="out"), options, Context("shop", str(folder), NoProbe()))


def test_the_column_of_the_folders_cannot_go(tmp_path: Path) -> None:
    info, content = StreamInfo("orders", Kind.ROWS), follow_drift(BEFORE, NOW, "evolve", dropped=["at"])
    sink(tmp_path).check(info, content)
    sink(tmp_path, partition_by=["day(day)"]).check(info, content)
    with pytest.raises(StreamRefused) as refused:
        sink(tmp_path, partition_by=["day(at)"]).check(info, content)
    assert refused.value.what == "partition_by names the column 'at', which the stream no longer has"
    assert refused.value.next_step == "bring it back, or use one of: id, day"
