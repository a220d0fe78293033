"""SIGINT and SIGTERM: the run ends by itself, says so in its exit code, and loses nothing."""

import signal
from pathlib import Path

import pytest

from tests.acceptance.shop import Shop


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("point", ["gate.intended", "gate.advanced"])
def test_stopped_between_slices(point: str, number: int, code: int, database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path)
    running = shop.command.start("run", "shop.yaml", "--json", point=point)
    running.reached()
    running.signal(number)
    running.go()
    stopped = running.end()
    assert stopped.code == code, stopped.err
    last = stopped.messages[-1]
    assert (last["type"], last["status"], last["exit_code"], last["has_more"]) == ("eof", "interrupted", code, True)
    _resumes(shop)


def test_stopped_while_spark_moves(database: str, tmp_path: Path) -> None:
    """The part that is being moved is given up; its slice stays open and is the first of the next run."""
    shop = Shop.open(database, tmp_path, mover="spark")
    running = shop.command.start("run", "shop.yaml", "--json", point="files.part_written")
    running.reached()
    running.signal(signal.SIGTERM)
    stopped = running.end()  # nobody let the worker go on
    assert stopped.code == 143, stopped.err
    shop.command.mover = "loop"
    _resumes(shop)


def _resumes(shop: Shop) -> None:
    done = shop.command.run("run", "shop.yaml", "--json")
    assert done.code == 0, done.err
    numbers = [message["number"] for message in done.messages if message["type"] == "state"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert shop.compared().same
