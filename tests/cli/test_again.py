"""What a user is told before a stream is set back: whether rows that come again will be there twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import wiring
from penstock.cli.state.preview import describe_duplicates
from penstock.core.slices import Kind
from penstock.ports import StreamInfo

FILE = """
pipelines:
  shop:
    source: {{type: postgres, url: "postgresql://a@localhost/shop"}}
    sink: {sink}
    streams: {{orders: {{cursor: at, tiebreaker: id{more}}}}}
"""
POSTGRES = '{type: postgres, url: "postgresql://a@localhost/copy"}'
ONE = "The sink keeps one row per key: rows delivered again replace the existing ones."
TWICE = "The {} sink appends: rows delivered again are duplicated."


@pytest.mark.parametrize(
    ("sink", "more", "key", "words"),
    [
        (POSTGRES, "", ("id",), ONE),
        (POSTGRES, ", key: [code]", (), ONE),
        (POSTGRES, "", (), TWICE.format("postgres")),
        (POSTGRES, ", mode: append", ("id",), TWICE.format("postgres")),
        ("{type: lake}", ", mode: merge", ("id",), ONE),
        ("{type: lake}", ", mode: append", ("id",), TWICE.format("lake")),
        ("{type: files, directory: out}", "", ("id",), TWICE.format("files")),
    ],
)
def test_it_depends_on_the_sinks_mode(tmp_path: Path, sink: str, more: str, key: tuple[str, ...], words: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(sink=sink, more=more))
    file = wiring.load(str(path))
    assert describe_duplicates(file, "shop", StreamInfo("orders", Kind.ROWS, key)) == words
    refresh = "A full refresh replaces the previous one: no row is duplicated."
    assert describe_duplicates(file, "shop", StreamInfo("orders", Kind.REFRESH, key)) == refresh
