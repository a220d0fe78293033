"""`penstock serve` as a process of its own, on a free port."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.faults import PATIENCE, Command


@contextmanager
def serving(command: Command, *words: str) -> Iterator[str]:
    """Its address, once it is ready. At the end it is told to stop, and must do so cleanly."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    running = command.start("serve", *words, "--port", str(port))
    try:
        end = time.monotonic() + PATIENCE
        while not _is_ready(url):
            if running.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the receiver is not ready: {running.end()}")
            time.sleep(0.02)
        yield url
        running.signal(signal.SIGTERM)
        assert running.end().code == 0
    finally:
        if running.process.poll() is None:
            running.kill()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=1):
            return True
    except (OSError, urllib.error.URLError):
        return False
