"""The stage on which the demo runs its commands."""

from __future__ import annotations

import subprocess
import sys

import psutil
from demo.stage import _names, _wait_for_end


def test_a_process_that_ends_while_it_is_asked_for_its_name_is_left_out() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    family = [psutil.Process(child.pid), psutil.Process()]
    child.communicate()
    assert _names(family) == {psutil.Process().name()}
    _wait_for_end(family[:1])
