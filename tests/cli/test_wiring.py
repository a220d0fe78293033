"""Who a process is, and whether it is gone."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from penstock import wiring


def test_this_process_is_not_gone() -> None:
    me = wiring.this_process()
    assert me.pid == os.getpid()
    assert me.boot
    assert me.started.isdigit()
    assert not wiring.gone(me)
    assert wiring.this_process().token != me.token


def test_a_process_that_ended_is_gone() -> None:
    script = "from penstock import wiring; me = wiring.this_process(); print(me.pid, me.started)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    pid, started = done.stdout.split()
    assert wiring.gone(dataclasses.replace(wiring.this_process(), pid=int(pid), started=started))


def test_a_process_id_that_was_given_to_another_process_is_gone() -> None:
    assert wiring.gone(dataclasses.replace(wiring.this_process(), started="1"))


def test_no_guess_about_another_machine_boot_or_namespace() -> None:
    me = dataclasses.replace(wiring.this_process(), pid=2**22 - 1, started="1")
    assert not wiring.gone(dataclasses.replace(me, boot="other"))
    assert not wiring.gone(dataclasses.replace(me, boot=""))
    assert not wiring.gone(dataclasses.replace(me, started=""))
