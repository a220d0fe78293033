"""Workers in the background, as `penstock warm FILE` and `spark.keep_warm` start them, with a JVM.

How it is started, what it says of itself, how a start fails, and that nothing is left when it has ended.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.harness.faults import Outcome
from tests.shared_jvm import jvms_of
from tests.warm.kit import WarmShop, until

from penstock import wiring
from penstock.warm import starting
from penstock.warm.worker_folder import WorkerFolder

#: how a worker describes itself
WORKER_LINE = (
    r"pid {pid}, started [\d.]+ s ago \(.+ UTC\), {runs}, [\d.]+ MiB of at most {limit}; "
    r"idle, ends .+ UTC unless a run starts"
)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[WarmShop]:
    """A shop without a worker; whatever a test has started has ended afterwards."""
    made = WarmShop.open(database, tmp_path)
    yield made
    end_all(made)


@pytest.fixture
def spark_shop(database: str, tmp_path: Path) -> Iterator[WarmShop]:
    """The same, whose commands move rows on Spark."""
    made = WarmShop.open(database, tmp_path, mover="spark")
    yield made
    end_all(made)


def end_all(shop: WarmShop) -> None:
    for process in shop.running():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def warm(shop: WarmShop, *words: str) -> Outcome:
    return shop.shop.command.run("warm", "shop.yaml", *words)


def log_of(shop: WarmShop) -> str:
    [path] = (shop.folder / "cache" / "penstock").glob("warm-*.log")
    return path.read_text()


def described(said: str, pid: int, runs: str, limit: str) -> bool:
    return re.fullmatch(WORKER_LINE.format(pid=pid, runs=runs, limit=limit), said) is not None


def document(said: Outcome) -> dict[str, Any]:
    assert (said.code, said.err) == (0, "")
    found: dict[str, Any] = json.loads(said.out)["worker"]
    return found


def test_a_worker_in_the_background(shop: WarmShop) -> None:
    started = warm(shop, "--memory", "3GiB")
    assert (started.code, started.err) == (0, "")
    doing, ready, line = started.out.splitlines()
    assert (doing, ready) == ("starting Spark …", "The warm worker is ready.")
    pid = int(line.split()[1].rstrip(","))
    assert described(line, pid, "0 runs", "3.0 GiB"), line
    assert os.getsid(pid) == pid, "it outlives the command's terminal"
    assert len(jvms_of(pid)) == 1

    again = warm(shop)
    assert again.code == 0
    running, line = again.out.splitlines()
    assert running == "The warm worker is already running."
    assert described(line, pid, "0 runs", "3.0 GiB"), line
    assert document(warm(shop, "--json"))["pid"] == pid

    ran = shop.run("--json")
    assert (ran.code, ran.err) == (0, "")
    found = shop.await_idle()
    assert (found["pid"], found["runs"], found["memory_limit_bytes"]) == (pid, 1, 3 << 30)
    status = shop.shop.command.run("status", "shop.yaml").out.splitlines()
    title, _, line = status[-1].partition(": ")
    assert title == "warm worker"
    assert described(line, pid, "1 run", "3.0 GiB"), status

    stopped = warm(shop, "--stop")
    assert (stopped.code, stopped.out) == (0, f"The warm worker (pid {pid}) has stopped.\n")
    assert "ends: asked to stop" in log_of(shop)
    assert shop.left_behind() == []
    none = warm(shop, "--stop")
    assert (none.code, none.out) == (0, "No warm worker is running for the store of shop.yaml.\n")
    assert document(warm(shop, "--stop", "--json")) is None
    assert "warm worker" not in shop.shop.command.run("status", "shop.yaml").out
    assert shop.status() is None
    shop.check_whole()


def test_a_run_leaves_a_worker_behind(spark_shop: WarmShop) -> None:
    """Only one that had to start Spark; the next run finds the worker."""
    shop = spark_shop
    file = shop.folder / "shop.yaml"
    file.write_text(file.read_text() + "spark: {keep_warm: 20m}\n")
    ran = shop.run()
    assert (ran.code, ran.err) == (0, "")
    found = until(shop.status)
    assert (found["runs"], found["memory_limit_bytes"]) == (0, 2 << 30)
    assert found["ends_at"] > found["since"]
    shop.shop.arrive(3001, 4000)
    handed = shop.run()
    assert (handed.code, handed.err) == (0, "")
    found_again = shop.await_idle()
    assert (found_again["pid"], found_again["runs"]) == (found["pid"], 1)
    assert document(warm(shop, "--stop", "--json"))["pid"] == found["pid"]
    assert shop.left_behind() == []
    # Nothing new: no Spark was started, so there is nothing to keep.
    assert shop.run().code == 0
    assert shop.processes() == []
    assert shop.shop.compared().same


# ---------------------------------------------------------------- a start that fails


def test_a_start_that_fails_says_why(shop: WarmShop) -> None:
    shop.shop.command.environment = {**shop.shop.command.environment, "JAVA_HOME": "/nowhere"}
    failed = warm(shop)
    assert (failed.code, failed.out) == (2, "starting Spark …\n")
    assert "error: Spark could not be started (local[" in failed.err
    assert "check that Java 17 or newer is installed" in failed.err
    assert "Traceback" not in failed.err + log_of(shop)
    assert shop.left_behind() == []


def test_a_worker_that_does_not_answer_is_not_replaced(shop: WarmShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is held, so another one would serve the same store."""
    monkeypatch.setenv("DATABASE_URL", shop.shop.url)
    name = starting.store_name(wiring.load(str(shop.folder / "shop.yaml")))
    folder = shop.folder / "runtime" / "penstock"
    folder.mkdir(mode=0o700)
    with WorkerFolder(folder) as held:
        lock = held.lock(name)
        assert lock is not None
        failed = warm(shop)
        assert failed.code == 2
        assert "the store already has a warm worker" in failed.err
        assert "penstock warm shop.yaml --stop" in failed.err
        held.unlock(name, lock)


def test_a_worker_that_is_killed_while_it_starts(shop: WarmShop) -> None:
    """The next one removes what it has left, and itself leaves nothing when no run has come."""
    command = shop.shop.command.start("warm", "shop.yaml")
    [child] = until(lambda: [each for each in shop.running() if "--ready-fd" in each.cmdline() and jvms_of(each.pid)])
    child.send_signal(signal.SIGKILL)
    failed = command.end()
    assert failed.code == 1
    assert "the warm worker exited during its start (exit code -9)" in failed.err
    assert "Next: read its log, " in failed.err
    until(lambda: shop.processes() == [])
    ready = document(warm(shop, "--for", "0.5s", "--json"))
    until(lambda: not psutil.pid_exists(ready["pid"]))
    assert "ends: idle" in log_of(shop)
    assert shop.left_behind() == []
