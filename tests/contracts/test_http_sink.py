"""The http sink keeps the contracts of sinks and of sinks that seal, against a receiver in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.harness.http_receiver import LedgerReceiver, ReceiverTransport, ids_of

from penstock.core.documents import parse
from penstock.core.slices import Receipt
from penstock.links.spools import FolderSpools
from penstock.ports import Context, Probe
from penstock.sinks.http import HttpSink, Options, build
from penstock.testing.contracts.delivery import PIPELINE, STREAM, table
from penstock.testing.contracts.sealing import SealingContract
from penstock.testing.contracts.sink import SinkContract


class Wire:
    """A receiver, and folders for spools."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options, self.receiver = folder, options, LedgerReceiver()

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> HttpSink:
        options = Options(url="http://receiver.test", retry_seconds=0.001, retry_most=0.001, wait=0, **self.options)
        context = Context(pipeline, str(self.folder), probe, spools=FolderSpools(str(self.folder / "spools"), pipeline))
        return build(options, {}, context, lambda: ReceiverTransport(self.receiver))

    def rows(self, stream: str = STREAM, column: str = "id") -> list[int]:
        return ids_of(self.receiver.readable.get(stream, []), column)

    def occupy(self, stream: str, *ids: int) -> None:
        self.receiver.readable.setdefault(stream, []).extend(table(*ids).to_pylist())

    def count_leftovers(self) -> int:
        """Attempts of which nothing was sent, and chunks of slices that are not whole."""
        staged = [path for path in self.folder.rglob("*-staged-*") if not (path / "_acknowledged").exists()]
        return len(staged) + self.receiver.open_rows()

    def damage(self, stream: str) -> None:
        """The receiver's log has lost what it kept for the sender."""
        from dataclasses import replace

        held = self.receiver.ledgers[stream]
        producer = held.producers[PIPELINE]
        assert producer.last is not None
        lost = replace(producer, last=replace(producer.last, bounds=""))
        self.receiver.ledgers[stream] = replace(held, producers=held.producers.having(PIPELINE, lost))

    def table(self, *ids: int) -> pa.Table:
        return table(*ids)

    def staged_file(self, receipt: Receipt) -> Path:
        (found,) = self.folder.rglob(parse(receipt.pieces)["file"])
        return found

    def lose_staged(self, receipt: Receipt) -> None:
        os.unlink(self.staged_file(receipt))

    def damage_staged(self, receipt: Receipt) -> None:
        path = self.staged_file(receipt)
        path.write_bytes(path.read_bytes()[:-1] + b"?")


class TestPenstock(SinkContract):
    """A slice becomes readable with its last chunk."""

    REFRESHES: ClassVar[bool] = False
    ORDERED: ClassVar[bool] = True
    COMMITS_AT_ONCE: ClassVar[bool] = True
    REPAIRS: ClassVar[bool] = False
    AFTER_A_DELETE: ClassVar[list[int] | None] = [1, 1, 2]

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Wire:
        return Wire(tmp_path)


class TestSmallChunksAsArrays(TestPenstock):
    """Each row is a request of its own, in an array that is not compressed."""

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Wire:
        return Wire(tmp_path, chunk_rows=1, format="json", compression="none")


class TestSealing(SealingContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Wire:
        return Wire(tmp_path)
