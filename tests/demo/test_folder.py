"""The demo's folder and server, without the acts: what is refused, what is removed, what is started and stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from demo.folder import MARKER, Folder
from demo.shop import server_of, start
from tests.harness.postgres import LocalServer, PortTaken

TOP = Path(__file__).parents[2]


def demo(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{TOP}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run([sys.executable, "-m", "demo", *words], cwd=cwd, env=env, capture_output=True, text=True)


def running_still(pid: int) -> bool:
    """One that has ended may lie unburied, where nobody looks after orphans."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder of the demo, at a path that wants quoting; nothing of it is left, wherever its server lies."""
    folder = Folder(tmp_path / "it's a demo, really")
    folder.make()
    yield folder
    if folder.is_ours:
        LocalServer(Path(), folder.server_directory(), port=0, password="").stop()
        folder.remove()


@pytest.fixture
def server(folder: Folder) -> LocalServer:
    return server_of(folder, stays=False)


# ------------------------------------------------------------ whose folder


@pytest.mark.parametrize("option", [[], ["--clean"], ["--server"], ["--stop"]])
def test_a_folder_that_the_demo_has_not_made_is_refused_and_left_alone(tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    ended = demo("mine", *option, cwd=tmp_path)
    assert ended.returncode == 2
    assert f"{tmp_path}/mine exists and was not created by the demo" in ended.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear")
    assert demo("mine", cwd=tmp_path).returncode == 2
    assert (tmp_path / "mine").read_text() == "dear"


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = demo("file/inside", cwd=tmp_path)
    assert ended.returncode == 2
    assert "cannot be written to: Not a directory" in ended.stderr


def test_a_folder_in_which_a_demo_is_at_work_is_refused(folder: Folder) -> None:
    with folder.lock():
        ended = demo(str(folder.path), "--clean", cwd=folder.path.parent)
    assert ended.returncode == 2
    assert "a demo is running in" in ended.stderr
    assert folder.is_ours


def test_cleaning_where_there_is_nothing_is_no_mistake(tmp_path: Path) -> None:
    ended = demo("nothing", "--clean", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "There is no demo in nothing: nothing to remove.\n")


def test_only_one_thing_can_be_asked_for(tmp_path: Path) -> None:
    ended = demo("--clean", "--stop", cwd=tmp_path)
    assert ended.returncode == 2
    assert "choose one of" in ended.stderr


def test_a_new_showing_keeps_the_server_and_what_others_have_put_there(folder: Folder) -> None:
    for place in (folder.lake, folder.archive, folder.report, folder.postgres):
        (place / "inside").mkdir(parents=True)
    folder.store.touch()
    (folder.path / "notes").touch()
    assert folder.make()
    folder.clear()
    left = {path.name for path in folder.path.iterdir()}
    assert left == {MARKER, ".gitignore", "shop.yaml", "postgres", "notes"}


def test_a_relative_folder_of_the_script_is_in_the_current_folder(folder: Folder) -> None:
    script = TOP / "script" / "demo"
    words = [str(script), folder.path.name, "--clean"]
    ended = subprocess.run(words, cwd=folder.path.parent, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"Removed {folder.path.name}.\n")
    assert not folder.path.exists()


# ------------------------------------------------------------ the server


def test_the_server_is_private_and_is_stopped_and_started_with_its_data(folder: Folder, server: LocalServer) -> None:
    start(folder, server)
    url = server.create("kept")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url(password="guessed"))
    first = server.pid()
    server.stop()
    assert server.pid() is None
    again = server_of(folder, stays=False)
    start(folder, again)
    assert again.pid() not in (None, first)
    psycopg.connect(url).close()
    again.stop()


def test_a_port_that_somebody_has_taken_is_left_to_him(folder: Folder, server: LocalServer) -> None:
    with socket.create_server(("127.0.0.1", server.port)):
        taken = server.port
        with pytest.raises(PortTaken):
            server.start()
        assert server.pid() is None
        start(folder, server)
        assert server.port != taken
    assert server_of(folder, stays=False).port == server.port
    server.stop()


def test_a_number_that_another_process_has_by_now_is_not_stopped(folder: Folder, server: LocalServer) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        server.data.mkdir()
        (server.data / "postmaster.pid").write_text(f"{sleeper.pid}\n")
        assert server.pid() is None
        server.stop()
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_server_that_was_left_running_is_found_stopped_and_removed(folder: Folder) -> None:
    path = str(folder.path)
    folder.server_directory()
    started = demo(path, "--server", cwd=folder.path.parent)
    assert started.returncode == 0, started.stderr
    server = server_of(folder, stays=True)
    running = server.pid()
    assert running is not None
    assert f"(process {running})" in started.stdout
    assert demo(path, "--server", cwd=folder.path.parent).stdout == started.stdout
    assert folder.environment.stat().st_mode & 0o077 == 0
    directory = server.directory
    assert demo(path, "--clean", cwd=folder.path.parent).returncode == 0
    assert server.pid() is None
    assert not running_still(running)
    assert not directory.exists()
    assert not folder.path.exists()
