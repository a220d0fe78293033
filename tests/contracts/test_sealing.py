"""Every sink that seals keeps the contract; a new one joins here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from tests.engine.spooling import Receiver, SealedSink, WithdrawingSink

from penstock.core.documents import parse
from penstock.core.slices import Receipt
from penstock.links.spools import FolderSpools
from penstock.ports import Context, Probe
from penstock.testing.contracts.delivery import PIPELINE, STREAM
from penstock.testing.contracts.sealing import SealingContract


class Pieces:
    """A receiver in memory, with spools in a folder."""

    def __init__(self, folder: Path, kind: type[SealedSink]) -> None:
        self.folder, self.kind, self.receiver = folder, kind, Receiver()

    def open(self, probe: Probe) -> SealedSink:
        spools = FolderSpools(str(self.folder), PIPELINE)
        return self.kind(self.receiver, Context(PIPELINE, str(self.folder), probe, spools=spools))

    def table(self, *ids: int) -> pa.Table:
        return pa.table({"place": pa.array(ids, pa.int64())})

    def rows(self) -> list[int]:
        complete = [each for each in self.receiver.taken.get(STREAM, []) if each.is_complete]
        return [place for each in complete for _, places in each.pieces for place in places]

    def lose_staged(self, receipt: Receipt) -> None:
        os.unlink(parse(receipt.pieces)["path"])

    def damage_staged(self, receipt: Receipt) -> None:
        Path(parse(receipt.pieces)["path"]).write_text("[9]")


class TestWithdrawing(SealingContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Pieces:
        return Pieces(tmp_path, WithdrawingSink)


class TestForeign(SealingContract):
    """A receiver that cannot withdraw anything."""

    WITHDRAWS: ClassVar[bool] = False

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Pieces:
        return Pieces(tmp_path, SealedSink)
