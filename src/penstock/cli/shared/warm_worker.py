"""Describes a warm worker, and prints why a run does not use it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.cli.shared.failures import ago, minute
from penstock.core.sizes import shown_size


def worker_lines(worker: Mapping[str, Any]) -> list[str]:
    """A worker's status document as text."""
    now = datetime.now(UTC)
    doing = f"running in process {worker['running']}" if worker["running"] else "idle"
    ends = f", ends {minute(worker['ends_at'])} unless a run starts" if worker["ends_at"] else ""
    runs = "1 run" if worker["runs"] == 1 else f"{worker['runs']:,} runs"
    memory = f"{shown_size(worker['memory_bytes'])} of at most {shown_size(worker['memory_limit_bytes'])}"
    return [f"pid {worker['pid']}, started {ago(worker['since'], now)}, {runs}, {memory}; {doing}{ends}"]


def print_unused_worker(why: str, *, as_json: bool) -> None:
    """Print once, before anything else, that a worker exists and why this run does not use it."""
    text = f"the warm worker is not used: {why}"
    now = datetime.now(UTC)
    if as_json:
        from penstock.core.messages import Log, encode

        print(encode(Log(level="info", text=text).stamped(now)), flush=True)
        return
    if not sys.stderr.isatty():
        from penstock.cli.shared.render import dated

        text = dated(text, now)
    print(text, file=sys.stderr, flush=True)
