"""Every way in which a run in a worker, its command or the worker can end: nothing is lost, doubled or left behind.

Here rows move without Spark, as elsewhere in the fault harness; `test_on_spark` has the same with a JVM.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import ANY

import pytest
from tests.acceptance.freezing import LEASE, past_its_lease
from tests.harness.postgres import PostgresServer
from tests.warm.kit import WarmShop, until, warm_shop


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmShop]:
    """One shop for all: a worker takes seconds to start."""
    with warm_shop(postgres_server.database(), tmp_path_factory.mktemp("warm"), lease=LEASE) as made:
        yield made


@pytest.fixture
def warm(shared: WarmShop) -> WarmShop:
    """With something new to move, and a worker."""
    shared.renew()
    return shared


def runs_of(warm: WarmShop) -> int:
    found = warm.status()
    assert found is not None
    return int(found["runs"])


def test_a_run_that_is_handed_over_says_and_does_the_same(warm: WarmShop) -> None:
    before = runs_of(warm)
    here = warm.shop.command.run("run", "shop.yaml", "--here", "--max-rows", "1000", "--plain")
    there = warm.run("--max-rows", "1000", "--plain")
    assert (here.code, here.err) == (there.code, there.err) == (0, "")

    def shape(said: str) -> list[str]:
        return ["".join(letter for letter in line if not letter.isdigit()) for line in said.splitlines()]

    assert shape(here.out)[0] == shape(there.out)[0]
    assert len(there.out.splitlines()) > 2
    assert runs_of(warm) == before + 1
    warm.check_whole()
    warm.stop_worker()
    assert warm.left_behind() == []


def test_messages_and_codes_are_those_of_any_run(warm: WarmShop) -> None:
    ran = warm.run("--json")
    assert [message["type"] for message in ran.messages][0 :: len(ran.messages) - 1] == ["catalog", "eof"]
    here = warm.shop.command.run("run", "shop.yaml", "--here", "--stream", "nothing")
    there = warm.run("--stream", "nothing")
    assert (there.code, undated(there.err)) == (here.code, undated(here.err))
    assert here.code == 2
    warm.renew()
    held = warm.halt("gate.planned")
    assert warm.run_pid() != held.process.pid
    second = warm.run("--json")
    assert "it is busy with another run" in second.messages[0]["text"]
    assert second.messages[0]["type"] == "log"
    held.go()
    assert held.end().code == 0


def undated(said: str) -> list[str]:
    return [line.partition(" ")[2] for line in said.splitlines()]


def test_hooks_get_the_environment_that_the_command_was_started_with(warm: WarmShop) -> None:
    text = (warm.folder / "shop.yaml").read_text()
    (warm.folder / "shop.yaml").write_text(text + 'on_success: env > "$PENSTOCK_PIPELINE.env"\n')
    (warm.folder / "more.env").write_text("SECRET_OF_FILE=x\n")
    ran = warm.run("--env-file", "more.env")
    assert "environment variables differ: SECRET_OF_FILE" in ran.err
    assert "SECRET_OF_FILE" not in (warm.folder / "shop.env").read_text()
    assert warm.run().err == ""
    assert f"TMPDIR={warm.folder / 'tmp'}" in (warm.folder / "shop.env").read_text().splitlines()
    (warm.folder / "shop.yaml").write_text(text)


# ---------------------------------------------------------------- somebody is killed


@pytest.mark.parametrize("point", ["engine.leased", "gate.intended", "gate.moved", "gate.committed"])
def test_the_command_is_killed(point: str, warm: WarmShop) -> None:
    """The run stops as by SIGTERM; the worker serves the next one."""
    halted = warm.halt(point, nth=1 if point == "engine.leased" else 2)
    halted.kill()
    halted.go()
    before = warm.await_idle()["runs"]
    warm.clear()
    assert warm.run().code == 0
    assert runs_of(warm) == before + 1
    warm.check_whole()


@pytest.mark.parametrize("point", ["gate.intended", "files.file_visible"])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_runs_process_is_killed(point: str, as_json: bool, warm: WarmShop) -> None:
    halted = warm.halt(point, *["--json"] * as_json, nth=2)
    pid = warm.run_pid()
    os.kill(pid, signal.SIGKILL)
    ended = halted.end()
    assert ended.code == 1
    assert f"the warm worker's process for this run (pid {pid}) was ended by signal 9" in ended.err
    assert "Nothing was lost" in ended.err
    if as_json:
        assert (ended.messages[-1]["type"], ended.messages[-1]["exit_code"]) == ("eof", 1)
    warm.clear()
    assert warm.run().code == 0, "a dead process's lease is taken over at once"
    warm.check_whole()


@pytest.mark.parametrize("both", [False, True])
def test_the_worker_is_killed(both: bool, warm: WarmShop) -> None:
    halted = warm.halt("gate.moved", nth=2)
    pid = warm.run_pid()
    if both:
        halted.signal(signal.SIGKILL)
    assert warm.worker is not None
    warm.worker.kill()
    ended = halted.end()
    if not both:
        assert ended.code == 1
        assert "the warm worker exited during the run" in ended.err
    warm.await_end()
    until(lambda: not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text())
    warm.clear()
    assert warm.run().err == "", "its socket is recognised as a leftover"
    warm.check_whole()
    assert warm.left_behind() == []


def test_what_stands_for_the_jvm_is_killed(warm: WarmShop) -> None:
    halted = warm.halt("gate.moved", nth=2)
    os.kill(warm_spark(warm), signal.SIGKILL)
    halted.go()
    # Here no row moves on it, so the run itself goes on.
    assert halted.end().code == 0
    assert warm.await_end() == 0
    assert "its JVM has ended (-9)" in (warm.folder / "worker.log").read_text()
    warm.check_whole()
    assert warm.left_behind() == []


def warm_spark(warm: WarmShop) -> int:
    """The process that the worker keeps; it is older than any run."""
    children = Path(f"/proc/{warm.pid}/task/{warm.pid}/children").read_text().split()
    return min(map(int, children))


# ---------------------------------------------------------------- somebody is frozen


def test_the_runs_process_is_frozen_past_its_lease(warm: WarmShop) -> None:
    halted = warm.halt("gate.moved", nth=2)
    pid = warm.run_pid()
    os.kill(pid, signal.SIGSTOP)
    past_its_lease()
    assert warm.run_here().code == 0
    halted.go()
    os.kill(pid, signal.SIGCONT)
    woken = halted.end()
    assert woken.code == 4, woken.err
    assert "was replaced" in woken.err
    warm.check_whole()


def test_a_frozen_worker_is_not_waited_for_and_runs_nothing_later(warm: WarmShop) -> None:
    before = runs_of(warm)
    assert warm.worker is not None
    warm.worker.send_signal(signal.SIGSTOP)
    ran = warm.run()
    assert ran.code == 0
    assert "the warm worker is not used: it does not answer" in ran.err
    warm.worker.send_signal(signal.SIGCONT)
    found = warm.await_idle()
    assert found["runs"] == before, "what was asked of it while it was frozen is not carried out"
    assert warm.run().code == 0
    warm.check_whole()


def test_a_worker_that_is_frozen_at_the_end_of_a_run(warm: WarmShop) -> None:
    """The run's own process says how it ends, so the command does not wait for ever."""
    halted = warm.halt("gate.moved", nth=2)
    assert warm.worker is not None
    warm.worker.send_signal(signal.SIGSTOP)
    halted.go()
    assert halted.end().code == 0
    warm.worker.send_signal(signal.SIGCONT)
    warm.await_idle()
    warm.check_whole()


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on(number: int, code: int, warm: WarmShop) -> None:
    halted = warm.halt("gate.intended", "--json", nth=2)
    halted.signal(number)
    halted.go()
    stopped = halted.end()
    assert stopped.code == code, stopped.err
    last = stopped.messages[-1]
    assert (last["type"], last["status"], last["exit_code"]) == ("eof", "interrupted", code)
    warm.check_whole()


def test_a_second_interrupt_ends_at_once(warm: WarmShop) -> None:
    halted = warm.halt("gate.intended", nth=2)
    pid = warm.run_pid()
    while halted.process.poll() is None:  # signals that come together may be one
        with suppress(ProcessLookupError):  # it may end between the question and the signal
            halted.signal(signal.SIGINT)
        time.sleep(0.05)
    ended = halted.end()
    assert ended.code == 130
    assert ended.err.count("stopped immediately; run the same command again to resume") == 1
    until(lambda: not Path(f"/proc/{pid}").exists())
    warm.check_whole()


def test_a_second_interrupt_ends_at_once_also_if_the_run_is_frozen(warm: WarmShop) -> None:
    halted = warm.halt("gate.intended", nth=2)
    pid = warm.run_pid()
    os.kill(pid, signal.SIGSTOP)
    while halted.process.poll() is None:
        halted.signal(signal.SIGINT)
        time.sleep(0.05)
    assert halted.end().code == 130
    os.kill(pid, signal.SIGCONT)
    until(lambda: not Path(f"/proc/{pid}").exists())
    warm.check_whole()


def test_a_worker_that_is_stopped_stops_its_run_cleanly_first(warm: WarmShop) -> None:
    halted = warm.halt("gate.intended", "--json", nth=2)
    stopping = warm.shop.command.start("warm", "shop.yaml", "--stop")
    # The run has been told once nobody else is let in any more.
    until(lambda: "it is stopping" in warm.run("--stream", "nothing").err)
    halted.go()
    stopped = halted.end()
    assert stopped.code == 143
    assert stopped.messages[-1]["status"] == "interrupted"
    ended = stopping.end()
    assert (ended.code, ended.out) == (0, f"The warm worker (pid {warm.pid}) has stopped.\n")
    assert warm.await_end() == 0
    warm.check_whole()
    assert warm.left_behind() == []


# ---------------------------------------------------------------- it ends itself


def test_it_ends_when_idle(database: str, tmp_path: Path) -> None:
    with warm_shop(database, tmp_path, "--for", "0.5") as warm:
        assert warm.await_end() == 0
        assert "ends: idle" in (tmp_path / "worker.log").read_text()
        warm.check_whole()
        assert warm.left_behind() == []


def test_it_ends_after_a_run_that_left_too_much_memory_in_use(database: str, tmp_path: Path) -> None:
    """Not before its first run, and never in the middle of one: that goes on to its end."""
    with warm_shop(database, tmp_path, "--memory", "1MiB") as warm:
        assert warm.status() == warm.ready | {"idle_seconds": ANY, "ends_at": ANY}, "it serves before its first run too"
        halted = warm.halt("gate.moved", nth=2)
        found = warm.status()
        assert found is not None
        assert found["memory_bytes"] > found["memory_limit_bytes"] == 1 << 20
        halted.go()
        assert halted.end().code == 0
        assert warm.await_end() == 0
        assert "ends: memory: " in (tmp_path / "worker.log").read_text()
        assert warm.left_behind() == []
        warm.shop.arrive(3001, 5000)
        later = warm.run("--json")
        assert (later.code, later.err) == (0, "")
        assert sum(message["rows"] for message in later.messages if message["type"] == "state") == 2000
        warm.check_whole()


def test_a_limit_that_is_not_reached_ends_nothing(database: str, tmp_path: Path) -> None:
    with warm_shop(database, tmp_path, "--memory", "8g") as warm:
        assert warm.run().err == ""
        found = warm.await_idle()
        assert found["runs"] == 1
        assert 0 < found["memory_bytes"] < found["memory_limit_bytes"] == 8 << 30
        assert warm.status() is not None


def test_it_ends_when_its_store_is_gone(warm: WarmShop) -> None:
    assert warm.run().code == 0
    shutil.rmtree(warm.folder / ".penstock")
    ran = warm.run()
    # A worker that has noticed it by itself has ended before it is asked: the command runs alone, on an empty store.
    said = ("its store was deleted or replaced", "the store knows nothing of this stream, but the sink holds")
    assert any(text in ran.err for text in said), ran.err
    assert warm.await_end() == 0
    assert warm.left_behind() == []
