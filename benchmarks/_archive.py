"""The class-data-sharing archive with which the command starts sooner: there before a cold start is measured.

The first clean run of a user makes it in the background, so the runs that follow have it.
"""

from __future__ import annotations

import time

import psutil
from benchmarks._starts import Cold

#: an argument of the Java that makes an archive
MAKING = "-XX:ArchiveClassesAtExit"
#: seconds that it may take
AT_MOST = 180


def wait_for_archive(first: Cold) -> None:
    """Run a command to its end, and wait until no archive is being made any more. SystemExit if that takes too long."""
    seconds = first.run("few").seconds
    print(f"  a first run, so that its archive is made in the background: {seconds:.1f} s", flush=True)
    begun = time.monotonic()
    while making():
        if time.monotonic() - begun > AT_MOST:
            raise SystemExit(f"a Java has been making an archive for more than {AT_MOST} s")
        time.sleep(0.2)
    print(f"  the archive was waited for: {time.monotonic() - begun:.1f} s", flush=True)


def making(argument: str = MAKING) -> bool:
    """Whether a process of this machine has an argument that begins like this."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(word.startswith(argument) for words in found for word in words)
