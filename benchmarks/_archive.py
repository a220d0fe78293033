"""The archive of classes with which Java starts sooner: there before the start of a command is measured.

A user's first clean run makes it in the background, so all runs that follow have it. A benchmark whose subject is the
start has a folder for archives of its own, in which the first run makes one; the others make what is missing before
they begin, so that nothing of it runs beside what they measure.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
from benchmarks import _orders as orders
from benchmarks._starts import Cold

#: what makes archives: in the background after a run, or called by itself and waited for
TRAINING = "penstock.links.spark.make_archive"
#: names the folder for archives
VARIABLE = "PENSTOCK_ARCHIVES"


def own_folder(below: Path) -> None:
    """From here on, commands that are started have a new folder for archives."""
    os.environ[VARIABLE] = str(below / "archives")


def wait_for_archive(first: Cold) -> None:
    """Run a command to its end, and wait for the archive that it leaves to be made."""
    seconds = first.run("few").seconds
    print(f"  a first run, which has its archive made in the background: {seconds:.1f} s", flush=True)
    begun = time.monotonic()
    while making() and not made(Path(first.env[VARIABLE])):
        time.sleep(0.2)
    if made(Path(first.env[VARIABLE])):
        print(f"  the archive was waited for: {time.monotonic() - begun:.1f} s", flush=True)
    else:
        print("  no archive was made: cold is measured without one", flush=True)


def made(folder: Path) -> bool:
    """Whether there is an archive in a folder; it has its name once it is whole."""
    return any(folder.glob("*.jsa"))


def making(module: str = TRAINING) -> bool:
    """Whether a process of this machine runs this module."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(module in words for words in found)


def make_archives() -> None:
    """Make the archives that this user lacks, and wait for them."""
    orders.run_once([orders.PYTHON, "-m", TRAINING], orders.environment(""), Path.cwd())
