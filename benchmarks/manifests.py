"""What a run into files costs after 10 slices and after 100,000 (`--slices`), in a local folder and in a bucket.

Runs of the two are measured in turns: with nothing new, and with 1,000 rows. CPU seconds of the process, and on S3 of
the server too (versitygw, on this machine). The manifests in between are made by the sink's own writer; `_slices` says
how. The ratio of the second to the first must be at most 1.3 for all four.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from benchmarks._slices import Slices, without_syncs
from tests.harness.versitygw import Gateway

from penstock.sinks.files import Options

BOUND = 1.3
#: slices behind the one that the other is compared with
YOUNG = 10


def local(folder: Path) -> Slices:
    return Slices(Options(directory=str(folder)), folder)


def on_s3(server: Gateway) -> Slices:
    bucket = server.bucket()
    options = Options.model_validate({"directory": f"s3://{bucket}/out", "s3": server.options})
    process = psutil.Process(server.pid)

    def seconds() -> float:
        spent = process.cpu_times()
        return float(spent.user + spent.system)

    return Slices(options, server.folder / "objects" / bucket / "out", seconds)


def measured(young: Slices, old: Slices, slices: int, runs: int) -> tuple[float, float]:
    """The ratios of a tick and of a run with nothing new."""
    for each, many in ((young, YOUNG), (old, slices)):
        begun = time.monotonic()
        each.tick()
        each.pass_slices(many - each.count)
        # The newest slices are those of real runs.
        each.tick()
        each.tick()
        print(f"  {each.count:>7} slices, {time.monotonic() - begun:5.0f} s", flush=True)
    ticks = [(young.tick(), old.tick()) for _ in range(runs)]
    idle = [(young.idle(), old.idle()) for _ in range(runs)]
    for what, pairs in (("a tick", ticks), ("a run with nothing new", idle)):
        first, second = (1000 * statistics.mean(pair[which] for pair in pairs) for which in (0, 1))
        print(f"    {what}: {first:.1f} ms of CPU after {YOUNG} slices, {second:.1f} ms after {slices}")
    return _ratio(ticks), _ratio(idle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=100_000, help="slices behind the grown one")
    parser.add_argument("--runs", type=int, default=60, help="runs of each kind that are measured")
    chosen = parser.parse_args()
    without_syncs()
    found: dict[str, float] = {}
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="penstock-manifests-", dir=memory if memory.is_dir() else None) as name:
        print("in a local folder:")
        folders = local(Path(name, "young")), local(Path(name, "old"))
        found["tick_ratio"], found["noop_ratio"] = measured(*folders, chosen.slices, chosen.runs)
    print("in a bucket:")
    server = Gateway()
    try:
        places = on_s3(server), on_s3(server)
        found["s3_tick_ratio"], found["s3_noop_ratio"] = measured(*places, chosen.slices, chosen.runs)
    finally:
        server.close()
    kept = max(found.values()) <= BOUND
    print(f"must hold: ratios at most {BOUND}: {'yes' if kept else 'NO'}")
    print(json.dumps(found))
    if not kept:
        raise SystemExit(1)


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return round(statistics.mean(pair[1] for pair in pairs) / statistics.mean(pair[0] for pair in pairs), 3)


if __name__ == "__main__":
    main()
