"""Who a process is, and whether it has ended."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

from penstock.links.processes import START_TIME, STATE, has_ended, stat_fields, this_process


def test_this_process_is_not_gone() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me.boot
    assert me.started.isdigit()
    assert not has_ended(me)
    assert this_process().token != me.token


def test_a_process_that_ended_is_gone() -> None:
    script = "from penstock.links.processes import this_process; me = this_process(); print(me.pid, me.started)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    pid, started = done.stdout.split()
    assert has_ended(dataclasses.replace(this_process(), pid=int(pid), started=started))


def test_a_process_whose_exit_status_nobody_has_asked_for_is_gone() -> None:
    """A container may have nobody who asks; a worker that is frozen asks for none of its runs."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        while stat_fields(ended.pid)[STATE] != "Z":
            time.sleep(0.01)
        started = stat_fields(ended.pid)[START_TIME]
        assert has_ended(dataclasses.replace(this_process(), pid=ended.pid, started=started))


def test_a_process_whose_first_thread_has_ended_is_not_gone() -> None:
    script = """
import ctypes, sys, threading
threading.Thread(target=lambda: sys.stdin.read()).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as half:
        while stat_fields(half.pid)[STATE] != "Z":
            time.sleep(0.01)
        started = stat_fields(half.pid)[START_TIME]
        assert not has_ended(dataclasses.replace(this_process(), pid=half.pid, started=started))
        half.kill()


def test_a_process_id_that_was_given_to_another_process_is_gone() -> None:
    assert has_ended(dataclasses.replace(this_process(), started="1"))


def test_no_guess_about_another_machine_boot_or_namespace() -> None:
    me = dataclasses.replace(this_process(), pid=2**22 - 1, started="1")
    assert not has_ended(dataclasses.replace(me, boot="other"))
    assert not has_ended(dataclasses.replace(me, boot=""))
    assert not has_ended(dataclasses.replace(me, started=""))
