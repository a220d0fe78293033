"""Python code in a mount namespace of its own: disks that it mounts end with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_alone(code: str, *arguments: str) -> str:
    """What the code printed; it must print no error."""
    # Propagation cannot be changed in a chroot; the code unmounts what it mounts.
    alone = ["unshare", "--mount", "--propagation", "unchanged"]
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = [*alone, *root, sys.executable, "-W", "error", "-c", code, *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
