"""The whole demo, for real, once, as the README's first command shows it; and what is left when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from demo import shop
from demo.acts import Demo
from demo.folder import Folder
from demo.stage import DemoFailed, Stage

#: the fewest that are allowed, for demos that are interrupted
ORDERS = "16000"
PATIENCE = 300.0
SCRIPT = Path(__file__).parents[2] / "script" / "demo"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Where the demo is shown; at the end nothing is left of it, wherever its server lies."""
    folder = Folder(tmp_path_factory.mktemp("the demo") / "out")
    yield folder
    subprocess.run([*demo(folder), "--clean"], check=True)


def demo(folder: Folder) -> list[str]:
    return [str(SCRIPT), str(folder.path)]


def server_runs(folder: Folder) -> bool:
    return shop.server_of(folder, stays=True).pid() is not None


@pytest.fixture(scope="module")
def shown(folder: Folder) -> str:
    """What the demo says."""
    ended = subprocess.run(demo(folder), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_whole_demo_tells_and_proves_what_it_promises(shown: str, folder: Folder) -> None:
    assert re.findall(r"^(\d)\. ", shown, re.MULTILINE) == list("123456789")
    told = [
        "archive: 1 stream can be synced",
        "Changes meanwhile, for the next run: ",
        ", in the middle of slice ",
        "  open: slice ",
        "Readers of the files see ",
        "archive/orders: finishing slice ",
        "report: nothing new in 1 stream",
        "no JVM was started and no file was written.",
        "Each image with its model: 1 Aurora, 2 Aurora, 3 Basalt. Now: DELETE FROM images WHERE id = 3;",
        "The delete and the fan-out have arrived: 1 Aurora XL, 2 Aurora XL.",
        "They agree: every row is present, and each version exactly once.",
    ]
    places = [shown.find(text) for text in told]
    assert -1 not in places, told[places.index(-1)]
    assert places == sorted(places)
    agreed = re.findall(r"^ {4}(\w+) +(\w+) +([\d,]+) rows (\w{16})  = +\3 rows \4 +0$", shown, re.MULTILINE)
    assert [f"{table} in {sink}" for table, sink, _, _ in agreed] == [
        "orders in lake",
        "events in lake",
        "products in lake",
        "orders in archive",
        "orders in report",
    ]
    assert "\x1b" not in shown
    assert shown.startswith("\n1. "), "nothing was to be set up, and nothing is said about that"
    # Not counted: the progress lines that a run prints on a slow machine, after half a minute without another.
    assert len([line for line in shown.splitlines() if ": still " not in line]) < 120
    assert not server_runs(folder)


def test_a_sink_that_lacks_a_file_ends_it_with_what_differs(shown: str, folder: Folder) -> None:
    server = shop.server_of(folder, stays=False)
    shop.start(folder, server)
    lost = sorted((folder.archive / "orders").glob("*.parquet"))[1]
    aside = lost.rename(folder.path / "aside")
    try:
        showing = Demo(folder, server, Stage(dict(os.environ)), orders=int(ORDERS))
        showing.url = server.url(shop.DATABASE)
        with pytest.raises(DemoFailed, match=r"orders in archive: .* missing from the sink \(") as told:
            showing.compare()
        assert told.value.exit_code == 1
    finally:
        aside.rename(lost)
        server.stop()


def test_what_is_proposed_to_try_next_works_as_it_stands(shown: str, folder: Folder) -> None:
    _, _, after = shown.partition("the second line restarts it.\n")
    lines = [line.strip() for line in after.splitlines() if line.startswith("    ")]
    assert len(lines) == 6
    ended = subprocess.run(["bash", "-e"], input="\n".join(lines), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "UPDATE 500\n" in ended.stdout
    assert "archive: complete; 500 rows" in ended.stdout
    assert ended.stdout.endswith(f"Removed {folder.path}.\n")
    assert not folder.path.exists()


# ------------------------------------------------------------ interrupted


def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < end, "never seen"
        time.sleep(0.05)


def names_below(process: psutil.Process) -> dict[psutil.Process, str]:
    found = {}
    for child in process.children(recursive=True):
        try:
            found[child] = child.name()
        except psutil.NoSuchProcess:
            continue
    return found


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def begun(folder: Folder) -> tuple[subprocess.Popen[str], dict[psutil.Process, str]]:
    """A demo whose first run has started its JVM, and all processes below it."""
    process = subprocess.Popen(
        [*demo(folder), "--orders", ORDERS], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    watched = psutil.Process(process.pid)
    until(lambda: process.poll() is not None or "java" in names_below(watched).values())
    family = names_below(watched)
    assert {"java", "postgres"} <= set(family.values()), family
    return process, family


def test_interrupted_it_stops_everything_and_says_how_to_go_on(folder: Folder) -> None:
    process, family = begun(folder)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "no process is left" in said
    assert "--clean" in said
    assert [name for child, name in family.items() if lives(child)] == []
    assert not server_runs(folder)


def test_killed_it_takes_its_server_and_its_run_along(folder: Folder) -> None:
    process, family = begun(folder)
    process.kill()
    process.communicate()
    until(lambda: not any(lives(child) for child in family))
    assert not server_runs(folder)
