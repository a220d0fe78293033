"""The environment of those that penstock is compared with: `.bench/`, made when it is first needed.

Not our own: their libraries would decide which versions of ours are installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent
FOLDER = TOP / ".bench"
WANTED = Path(__file__).with_name("requirements-peers.txt")
#: the scripts that are run in it, or beside it
SCRIPTS = Path(__file__).with_name("peers")


def program(name: str) -> str:
    """A program of the environment, which is made or renewed if it is not what is wanted."""
    made, now = FOLDER / "made-from", hashlib.sha256(WANTED.read_bytes() + sys.version.encode()).hexdigest()
    if not made.exists() or made.read_text() != now:
        print(f"  the peers' environment is made in {FOLDER.name}/", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
        install = [str(FOLDER / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--requirement", str(WANTED)], check=True)
        made.write_text(now)
    return str(FOLDER / "bin" / name)
