"""A worker with a JVM: rows move on it, and whatever ends in the middle of a move, its tasks end too.

One worker for all tests, but for those that kill it or its JVM.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.acceptance.freezing import LEASE, check_replaced, past_its_lease
from tests.harness.postgres import PostgresServer
from tests.shared_jvm import jvms_of
from tests.warm.kit import Halted, WarmShop, until, warm_shop

from penstock.links.spark.temp_folder import PREFIX

#: reached in a Python worker of Spark, in the middle of a move
MOVING = "files.part_written"


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmShop]:
    folder = tmp_path_factory.mktemp("warm")
    with warm_shop(postgres_server.database(), folder, spark=True, lease=LEASE) as made:
        yield made


@pytest.fixture
def warm(shared: WarmShop) -> WarmShop:
    shared.renew(spark=True)
    return shared


def jvm(warm: WarmShop) -> psutil.Process:
    [found] = jvms_of(warm.pid)
    return psutil.Process(found)


def in_mid_move(warm: WarmShop, *options: str) -> tuple[Halted, int]:
    """A command whose run halts in a Python worker, and that worker's process."""
    halted = warm.halt(MOVING, *options)
    worker = halted.reached()["pid"]
    assert jvm(warm).pid in [parent.pid for parent in psutil.Process(worker).parents()]
    return halted, worker


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_rows_move_on_the_workers_spark(warm: WarmShop) -> None:
    before = jvm(warm)
    done = warm.run("--json")
    assert (done.code, done.err) == (0, "")
    moved = [message["rows"] for message in done.messages if message["type"] == "state"]
    assert sum(moved) == 5000
    assert len(moved) > 3
    assert jvm(warm) == before
    found = warm.await_idle()
    assert found["runs"] == 1
    assert found["memory_bytes"] > before.memory_info().rss, "its JVM counts"
    warm.check_whole()


def test_a_run_that_needs_another_spark_starts_its_own(warm: WarmShop) -> None:
    ran = warm.run("--set", 'spark.config."spark.sql.shuffle.partitions"=7')
    assert ran.code == 0, ran.err
    assert (
        "not use the warm worker's Spark and starts its own: `spark.config` differs in spark.sql.shuffle.partitions"
        in ran.err
    )
    warm.renew()
    assert warm.run().err == ""
    warm.check_whole()


@pytest.mark.parametrize("who", ["the command", "the run"])
def test_a_kill_in_mid_move_ends_the_tasks_too(who: str, warm: WarmShop) -> None:
    halted, worker = in_mid_move(warm)
    run = warm.run_pid()
    os.kill(halted.process.pid if who == "the command" else run, signal.SIGKILL)
    ended = halted.end()
    if who == "the run":
        assert ended.code == 1
        assert "was ended by signal 9" in ended.err
    until(lambda: is_gone(run))
    until(lambda: is_gone(worker))  # nobody let it go on
    warm.clear()
    warm.await_idle()
    assert warm.run().err == "", "the worker goes on"
    warm.check_whole()


def test_an_interrupt_in_mid_move(warm: WarmShop) -> None:
    halted, worker = in_mid_move(warm, "--json")
    halted.signal(signal.SIGINT)
    stopped = halted.end()
    assert stopped.code == 130, stopped.err
    assert stopped.messages[-1]["status"] == "interrupted"
    until(lambda: is_gone(worker))
    warm.check_whole()


def test_a_run_that_is_frozen_in_mid_move_past_its_lease(warm: WarmShop) -> None:
    halted, worker = in_mid_move(warm)
    run = warm.run_pid()
    os.kill(run, signal.SIGSTOP)
    past_its_lease()
    assert warm.run_here().code == 0
    os.kill(run, signal.SIGCONT)
    woken = halted.end()
    assert woken.code == 4, woken.err
    until(lambda: is_gone(worker))
    warm.check_whole()


@pytest.mark.parametrize("spark_too", [False, True])
def test_worker_and_run_are_frozen_together_past_the_lease(spark_too: bool, warm: WarmShop) -> None:
    """They go on while another run, which has taken over, is in the middle of a slice."""
    halted, task = in_mid_move(warm)
    run, java = warm.run_pid(), jvm(warm)
    spark = [java.pid, *(child.pid for child in java.children(recursive=True))] if spark_too else []
    for pid in (warm.pid, run, *spark):
        os.kill(pid, signal.SIGSTOP)
    past_its_lease()
    other = warm.shop.command.start("run", "shop.yaml", point="gate.moved")
    other.reached()
    for pid in (warm.pid, run, *spark):
        os.kill(pid, signal.SIGCONT)
    check_replaced(halted.end())
    until(lambda: is_gone(task))
    other.go()
    went_on = other.end()
    assert went_on.code == 0
    assert "the warm worker is not used: it does not answer" in went_on.err
    warm.clear()
    assert warm.await_idle()["running"] is None
    assert warm.run().err == "", "the worker goes on"
    warm.check_whole()
    assert warm.staged() == []
    assert jvm(warm) == java


@pytest.mark.parametrize("both", [False, True])
def test_the_worker_is_killed_in_mid_move(both: bool, warm: WarmShop) -> None:
    """Its JVM and the tasks end with it. The next run moves the rows again, and the next worker sweeps its folder."""
    halted, task = in_mid_move(warm)
    run, java = warm.run_pid(), jvm(warm).pid
    if both:
        halted.signal(signal.SIGKILL)
    assert warm.worker is not None
    warm.worker.kill()
    ended = halted.end()
    if not both:
        assert ended.code == 1
        assert "the warm worker exited during the run" in ended.err
    assert warm.await_end() == -signal.SIGKILL
    until(lambda: all(is_gone(pid) for pid in (run, java, task)))
    until(lambda: warm.processes() == [])
    warm.clear()
    assert warm.run().err == "", "its socket is recognised as a leftover"
    warm.check_whole()
    warm.renew(spark=True)
    assert warm.run().err == ""
    warm.check_whole()
    assert warm.staged() == []
    folders = [path.name for path in Path(warm.folder, "tmp").iterdir() if path.suffix != ".log"]
    assert [name for name in folders if not name.startswith(f"{PREFIX}{warm.pid}-")] == []


def test_the_jvm_is_killed_in_mid_move(warm: WarmShop) -> None:
    halted, _worker = in_mid_move(warm)
    jvm(warm).send_signal(signal.SIGKILL)
    failed = halted.end()
    assert failed.code == 1
    assert "shop/orders: Spark died: its JVM was killed (signal 9)" in failed.err
    assert "Traceback" not in failed.err
    assert warm.await_end() == 0
    assert "its JVM has ended (-9)" in (warm.folder / "worker.log").read_text()
    warm.check_whole()
    assert warm.left_behind() == []
    logs = [path.name for path in Path(warm.folder, "tmp").iterdir()]
    assert len(logs) == 1, logs
