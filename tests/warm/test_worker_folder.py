"""Where commands and workers meet: names, modes, locks, leftovers, and a user who must not get in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.warm.worker_folder import ALIAS, LOCK, SOCKET, WorkerFolder, folder_path, name_of

NOBODY = 65534
#: tries to enter a folder and to connect to a socket in it, as another user
STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
def tried(work):
    try:
        work()
        return "done"
    except OSError as error:
        return error.strerror
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
print(tried(lambda: connection.connect(sys.argv[1])), "|", tried(lambda: os.listdir(os.path.dirname(sys.argv[1]))))
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a login has it."""
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_the_folder_is_the_logins_own_or_else_among_the_caches(runtime: Path, tmp_path: Path) -> None:
    assert folder_path() == runtime / "penstock"
    runtime.chmod(0o755)
    assert folder_path() == tmp_path / "cache" / "penstock" / "warm"


def test_a_new_folder_and_socket_are_for_their_owner_alone(runtime: Path) -> None:
    mask = os.umask(0)
    try:
        with WorkerFolder.make() as place, place.listen("x"):
            modes = [(runtime / "penstock" / name).lstat().st_mode & 0o777 for name in ("", f"x{SOCKET}")]
    finally:
        os.umask(mask)
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_folder_that_others_may_enter_is_refused(how: str, runtime: Path, tmp_path: Path) -> None:
    path = runtime / "penstock"
    if how == "open to others":
        path.mkdir()
        path.chmod(0o750)
    elif how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.touch()
    with pytest.raises(InputError, match=r"folder of warm workers"):
        WorkerFolder.make()
    assert WorkerFolder.find() is None, "a command does not look for a worker there"


def test_a_folder_of_another_user_is_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "penstock").mkdir(mode=0o700)
    # Only root can give a folder away; for anyone else it is enough to be taken for somebody else.
    if os.geteuid() == 0:
        os.chown(runtime / "penstock", NOBODY, NOBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(InputError, match="other users can access"):
        WorkerFolder.make()


def test_another_user_reaches_neither_the_socket_nor_its_folder() -> None:
    # Not below pytest's own folder, which keeps them out by itself.
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        os.chmod(top, 0o755)
        patch.setenv("XDG_RUNTIME_DIR", "")
        patch.setenv("XDG_CACHE_HOME", top)
        with WorkerFolder.make() as place, place.listen("x"):
            place.path.parent.chmod(0o755)
            assert tried_by_a_stranger(place) == ["Permission denied", "Permission denied"]
            place.path.chmod(0o755)
            # The socket's own mode keeps them out too.
            assert tried_by_a_stranger(place)[0] == "Permission denied"


def tried_by_a_stranger(place: WorkerFolder) -> list[str]:
    """What another user is told who connects to the socket, and who lists its folder."""
    if os.geteuid() != 0:
        # Nobody but root can start a process of another user: the modes say what the kernel would.
        closed = [not path.lstat().st_mode & 0o077 for path in (place.path / f"x{SOCKET}", place.path)]
        return ["Permission denied" if each else "done" for each in closed]
    command = [sys.executable, "-c", STRANGER.format(nobody=NOBODY), str(place.path / f"x{SOCKET}")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split(" | ")


def test_a_socket_may_lie_deeper_than_its_address_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    deep.mkdir(parents=True, mode=0o700)
    deep.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert len(str(deep)) > 108
    with WorkerFolder.make() as place, place.listen("x"):
        connection = place.connect("x", 1.0)
        assert connection is not None
        connection.close()


def test_a_dead_workers_socket_is_recognised_and_removed(runtime: Path) -> None:
    with WorkerFolder.make() as place:
        place.listen("x").close()
        assert place.any_socket()
        assert place.connect("x", 1.0) is None
        assert not place.any_socket()
        assert os.listdir(place.path) == []


def test_a_socket_whose_worker_is_just_starting_is_left_alone(runtime: Path) -> None:
    """Between `bind` and `listen` a connection is refused too; the lock tells the two apart."""
    with WorkerFolder.make() as place:
        lock = place.lock("x")
        assert lock is not None
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(place.path / f"x{SOCKET}"))
        assert place.connect("x", 1.0) is None
        assert place.any_socket()
        bound.close()
        place.unlock("x", lock)


def test_one_worker_wins(runtime: Path) -> None:
    with WorkerFolder.make() as place:
        lock = place.lock("x")
        assert lock is not None
        assert place.lock("x") is None
        other = place.lock("y")
        assert other is not None
        place.unlock("y", other)
        place.unlock("x", lock)
        again = place.lock("x")
        assert again is not None
        place.unlock("x", again)
        assert not list(place.path.glob(f"*{LOCK}"))


def test_a_lock_that_its_owner_removed_is_no_lock(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner removes the file between another process's `open` and `flock`: that one tries again."""
    import fcntl

    with WorkerFolder.make() as place:
        lock = place.lock("x")
        assert lock is not None
        flock = fcntl.flock
        calls: list[int] = []

        def late(handle: int, how: int) -> None:
            if not calls:
                place.unlock("x", lock)
            calls.append(handle)
            flock(handle, how)

        monkeypatch.setattr(fcntl, "flock", late)
        taken = place.lock("x")
        assert taken is not None
        assert len(calls) == 2
        assert place.lock("x") is None
        place.unlock("x", taken)


def test_a_file_leads_to_its_stores_worker(runtime: Path, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.touch()
    (tmp_path / "link.yaml").symlink_to(file)
    with WorkerFolder.make() as place:
        assert place.alias(str(file)) is None
        place.set_alias(str(file), "x")
        place.set_alias(str(file), "y")
        assert place.alias(str(tmp_path / "link.yaml")) == "y"
        place.remove_aliases("x")
        assert place.alias(str(file)) == "y"
        place.remove_aliases("y")
        assert not list(place.path.glob(f"*{ALIAS}"))


def test_a_name_tells_nothing_and_fits() -> None:
    name = name_of('postgresql:["db", "5432", "shop", "ann"]')
    assert len(name) == 24
    assert name.isalnum()
    assert name != name_of('postgresql:["db", "5432", "shop", "bob"]')
