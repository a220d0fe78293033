"""A worker that a run cannot use, or that has no store any more: the run moves its rows itself, or the worker ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer
from tests.warm.kit import WarmShop, until, warm_shop

from penstock.warm import store_watch
from penstock.warm.store_watch import GONE, MAX_FAILED_QUERIES, NO_ANSWER, StoreWatch

ROWS = 3000
#: how often a worker of these tests looks at its store
POLL_SECONDS = 0.1


def must_run_by_itself(warm: WarmShop, command: Command, file: str, why: str) -> None:
    """The command says why, moves everything in its own process, and nothing has run in the worker."""
    ran = command.run("run", file, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.messages[0]["type"], ran.messages[0]["text"]) == ("log", f"the warm worker is not used: {why}")
    assert sum(message["rows"] for message in ran.messages if message["type"] == "state") == ROWS
    compared = warm.shop.compared()
    assert compared.same, compared


def test_a_run_of_another_version(database: str, tmp_path: Path) -> None:
    with warm_shop(database, tmp_path, settings={"describes": {"version": "0.0.1"}}) as warm:
        must_run_by_itself(warm, warm.shop.command, "shop.yaml", "penstock's version differs")
        assert warm.await_idle()["runs"] == 0
        warm.stop_worker()
        assert warm.left_behind() == []


def test_a_run_after_an_upgrade_ends_the_worker(database: str, tmp_path: Path) -> None:
    with warm_shop(database, tmp_path, settings={"describes": {"code": "before"}}) as warm:
        why = "penstock or a package has changed since the worker started"
        must_run_by_itself(warm, warm.shop.command, "shop.yaml", why)
        assert warm.await_end() == 0
        assert "ends: penstock or a package was changed" in (tmp_path / "worker.log").read_text()
        assert warm.left_behind() == []


def test_a_run_in_another_folder(database: str, tmp_path: Path) -> None:
    with warm_shop(database, tmp_path) as warm:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        command = Command(elsewhere, "loop", warm.shop.command.environment)
        must_run_by_itself(warm, command, "../shop.yaml", f"the worker runs in the folder {tmp_path}")
        assert not (elsewhere / "out").exists()
        assert warm.await_idle()["runs"] == 0


# ---------------------------------------------------------------- a store on a server


@pytest.fixture
def store_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def test_it_ends_when_the_server_of_its_store_goes_away(
    database: str, store_server: PostgresServer, tmp_path: Path
) -> None:
    store = store_server.database("store")
    with warm_shop(database, tmp_path, store=store, settings={"poll_seconds": POLL_SECONDS}) as warm:
        assert warm.run().err == ""
        assert warm.await_idle()["runs"] == 1
        store_server.stop()
        assert warm.await_end() == 0
        assert f"ends: {NO_ANSWER}" in (tmp_path / "worker.log").read_text()
        assert warm.left_behind() == []
        store_server.start()
        warm.check_whole()


def test_it_ends_when_its_store_is_dropped_from_the_server(
    database: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    store = postgres_server.database()
    with warm_shop(database, tmp_path, store=store, settings={"poll_seconds": POLL_SECONDS}) as warm:
        assert warm.run().err == ""
        assert warm.await_idle()["runs"] == 1
        with psycopg.connect(store, autocommit=True) as connection:
            connection.execute("drop schema penstock cascade")
        assert warm.await_end() == 0
        assert f"ends: {GONE}" in (tmp_path / "worker.log").read_text()
        assert warm.left_behind() == []


class Server:
    """What a watch is told of a server, one answer after the other; None: it does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_watch, "SERVER_POLL_SECONDS", 0.0)
        self.answer: bool | None = False
        self.watch = StoreWatch(None, self._ask)

    def _ask(self) -> bool:
        if self.answer is None:
            raise OSError("no answer")
        return self.answer

    def after(self, missing: bool | None) -> str | None:
        """What the watch says after one query with this answer."""
        self.answer = missing
        assert self.watch.why_gone() is None, "this starts the query"
        query = self.watch._query_pid
        assert query is not None
        until(lambda: os.waitid(os.P_PID, query, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None)
        return self.watch.why_gone()


def test_a_server_that_restarts_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.watch.after_run()
    for _ in range(2):
        for _ in range(MAX_FAILED_QUERIES - 1):
            assert server.after(None) is None
        assert server.after(False) is None
    assert server.after(True) == GONE


def test_a_store_that_was_never_made_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.answer = True
    assert server.watch.why_gone() is None
    time.sleep(0.01)
    assert server.watch.why_gone() is None
    assert server.watch._query_pid is None
