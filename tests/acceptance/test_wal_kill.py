"""SIGKILL at every point of a run that reads the receiver's log; batches arrive before the restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.wal.readers import read_registry
from penstock.wal.segments import list_numbers
from tests.acceptance.freezing import LEASE, check_replaced, past_its_lease
from tests.acceptance.inbox import Inbox
from tests.acceptance.matrix import ONCE
from tests.harness.faults import RUN_POINTS


@pytest.mark.parametrize("point", RUN_POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    inbox = Inbox.open(tmp_path)
    inbox.arrive(120)
    nth = 1 if point in ONCE else 2
    assert inbox.command.kill_at(point, "run", "inbox.yaml", nth=nth)["point"] == point
    inbox.arrive(40)
    inbox.goes()
    assert inbox.differences() == {}
    assert inbox.ids() == sorted(inbox.ids()), "in the order in which the batches were complete"
    assert list_numbers(str(inbox.log)) == [max(list_numbers(str(inbox.log)))], "what was read is deleted"


def test_a_run_that_was_frozen_finds_its_slice_delivered(tmp_path: Path) -> None:
    """It is replaced while frozen: it adds nothing, and its late word does not move the log's readers back."""
    inbox = Inbox.open(tmp_path)
    inbox.write(lease=LEASE)
    inbox.arrive(120)
    with inbox.command.frozen("run", "inbox.yaml", point="gate.moved", nth=2) as frozen:
        past_its_lease()
        inbox.arrive(40)
        inbox.goes()
        assert inbox.differences() == {}
        read = read_registry(str(inbox.log))
    check_replaced(frozen.end())
    assert read_registry(str(inbox.log)) == read
    assert inbox.differences() == {}
