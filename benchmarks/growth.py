"""What a tick costs after 100 ticks and after 20,000: a store and a lake table that have grown by one slice a minute.

Two pipelines of one stream, whose content is that of a wide table, by real engine, store, lake and upkeep at their
defaults, on a clock that moves a minute a tick. One has 100 ticks behind it, the other 20,000; then ticks of the two
are measured in turns, and runs with nothing new. CPU seconds of the process, so that a disk does not count. The ratio
of the second to the first must be at most 1.3 for both. `_ticks` says how the ticks in between are made.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks._ticks import Ticks

BOUND = 1.3
#: ticks behind the one that the other is compared with
YOUNG = 100
#: ticks of each that are measured: landings forget states and merge manifests every 20 and 30 ticks
MEASURED = 120
#: runs with nothing new of each that are measured
IDLE = 60


def grown(folder: Path, ticks: int) -> Ticks:
    """A pipeline with so many ticks behind it."""
    made = Ticks(folder)
    made.tick()
    begun = time.monotonic()
    while made.count < ticks:
        made.pass_ticks(min(1000, ticks - made.count))
        print(f"  {made.count:>6} ticks, {time.monotonic() - begun:5.0f} s: {json.dumps(made.facts())}", flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=20_000, help="ticks behind the grown one")
    parser.add_argument("--young", type=int, default=YOUNG, help="ticks behind the one that it is compared with")
    parser.add_argument("--measured", type=int, default=MEASURED, help="ticks of each that are measured")
    parser.add_argument("--untimed", action="store_true", help="a small run: ratios are told, no bound is on them")
    chosen = parser.parse_args()
    # Only CPU time is measured, and nobody pulls the plug meanwhile.
    setattr(os, "fsync", _ignored)  # noqa: B010 (mypy knows another signature)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="penstock-growth-", dir=memory if memory.is_dir() else None) as name:
        young, old = grown(Path(name, "young"), chosen.young), grown(Path(name, "old"), chosen.ticks)
        bytes_before, count = old.store_bytes, old.count
        ticks = [(young.tick(), old.tick()) for _ in range(chosen.measured)]
        idle = [(young.idle(), old.idle()) for _ in range(max(1, chosen.measured * IDLE // MEASURED))]
        metadata = old.metadata_bytes
    for which, behind in enumerate((chosen.young, count)):
        cost, nothing = _mean(ticks, which), _mean(idle, which)
        print(f"  after {behind} ticks a tick takes {cost:.1f} ms of CPU, with nothing new {nothing:.1f} ms")
    found = {
        "tick_ratio": round(_mean(ticks, 1) / _mean(ticks, 0), 3),
        "noop_ratio": round(_mean(idle, 1) / _mean(idle, 0), 3),
        "store_bytes_per_tick": round(bytes_before / count, 1),
        "metadata_bytes": metadata,
    }
    kept = found["tick_ratio"] <= BOUND and found["noop_ratio"] <= BOUND
    print(f"must hold: ratios at most {BOUND}: {'yes' if kept else 'NO'}")
    print(json.dumps(found))
    if not kept and not chosen.untimed:
        raise SystemExit(1)


def _ignored(_: int) -> None:
    return None


def _mean(pairs: list[tuple[float, float]], which: int) -> float:
    """In milliseconds."""
    return statistics.mean(pair[which] for pair in pairs) * 1000


if __name__ == "__main__":
    main()
