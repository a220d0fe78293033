"""Lists of a REST API into Parquet files, beside a bare httpx loop that fetches the same pages and throws them away.

A server in a process of its own answers at once with pages of 100 records of 1 KB, in 8 lists. Both ask with the same
concurrency, in turns; penstock is warm, and its seconds go from the store's opening to its closing. Medians. penstock
must reach 0.6 times the rate of the loop, and its memory (peak of the summed PSS of all its processes) must stay flat
while the records grow tenfold, in one more run: at most 1.25 times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import httpx
from benchmarks import _orders as orders
from benchmarks._contenders import told
from benchmarks._list_server import ListServer
from benchmarks._processes import spending
from benchmarks._verdict import least, most
from benchmarks._warm import Kept, Warm

STREAMS, PAGE = 8, 100
#: requests that are under way at the same time
CONCURRENCY = 8
RATE, MEMORY = 0.6, 1.25
TENFOLD = 10

PIPELINE = """\
  {name}:
    source: {{type: rest, base_url: "{url}/{records}", concurrency: {concurrency}}}
    sink: {{type: files, directory: out/{name}}}
    streams:
{streams}
"""
STREAM = "      list{number}: {{time: {{}}, columns: {{amount: int64, currency: string, paid: bool}}}}"


def pipeline(name: str, url: str, records: int) -> str:
    """All lists, as a pipeline file says it."""
    streams = "\n".join(STREAM.format(number=number) for number in range(STREAMS))
    return PIPELINE.format(name=name, url=url, records=records, concurrency=CONCURRENCY, streams=streams)


async def fetch(url: str, records: int) -> None:
    """Fetch all pages of all lists, each list by its own task, and throw them away."""

    async def one(client: httpx.AsyncClient, number: int) -> None:
        for after in range(records, 0, -PAGE):
            parameters = {"limit": str(PAGE), "starting_after": f"ch_{after:012}"}
            answer = await client.get(f"{url}/{records}/list{number}", params=parameters)
            answer.raise_for_status()

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CONCURRENCY)) as client:
        await asyncio.gather(*(one(client, number) for number in range(STREAMS)))


def timed_fetch(url: str, records: int) -> float:
    begun = time.perf_counter()
    asyncio.run(fetch(url, records))
    return time.perf_counter() - begun


class Bench:
    """The server, a warm penstock with a pipeline for each of its runs, and a warm loop."""

    def __init__(self, folder: Path, url: str, rows: int, runs: int) -> None:
        self.folder, self.url = folder, url
        #: records of one list
        self.records = rows // STREAMS
        names = {f"run{run}": self.records for run in range(-1, runs)} | {"many": self.records * TENFOLD}
        text = "".join(pipeline(name, url, records) for name, records in names.items())
        (folder / "lists.yaml").write_text(f"pipelines:\n{text}")

    def warm(self) -> Warm:
        return Warm(self.folder / "lists.yaml", dict(os.environ))

    def take(self, process: Kept, name: str) -> tuple[float, float]:
        """One run: its seconds and the peak in MiB. SystemExit unless it has delivered every record."""
        with spending(process.pid) as cost:
            said = process.tell(name)
        records = self.records * TENFOLD if name == "many" else self.records
        found = orders.rows_in(self.folder / "out" / name)
        if found != records * STREAMS:
            raise SystemExit(f"penstock was to bring {records * STREAMS:,} records and brought {found:,}")
        print(f"    {told(said['steps'])}")
        return float(said["seconds"]), cost[0].peak

    def measure(self, runs: int) -> tuple[dict[str, float], float, float]:
        """Median seconds of each, and the peaks in MiB with the records and with ten times as many."""
        seconds: dict[str, list[float]] = {"httpx": [], "penstock": []}
        peaks: list[float] = []
        with self.warm() as process:
            for run in range(-1, runs):
                found = {"httpx": timed_fetch(self.url, self.records)}
                found["penstock"], peak = self.take(process, f"run{run}")
                peaks.append(peak)
                for name, each in found.items():
                    print(f"  run {run + 1:2} {name:<10} {each:8.2f} s", flush=True)
                    if run >= 0:
                        seconds[name].append(each)
            # Last: memory that a process has once taken stays with it.
            tenfold = self.take(process, "many")[1]
        return {name: round(statistics.median(each), 3) for name, each in seconds.items()}, max(peaks), tenfold


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="records of all lists together")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-rest-") as folder,
        ListServer(chosen.rows // STREAMS * TENFOLD) as server,
    ):
        print(f"{chosen.rows:,} records of 1 KB in {STREAMS} lists; {chosen.runs} runs, and one to warm up", flush=True)
        seconds, peak, tenfold = Bench(Path(folder), server.url, chosen.rows, chosen.runs).measure(chosen.runs)
    rate, memory = seconds["httpx"] / seconds["penstock"], tenfold / peak
    print("must hold:")
    print(least("penstock's rate, times that of the loop", rate, RATE))
    print(most("memory with ten times the records, times as much", memory, MEMORY))
    result = {
        "contenders": {name: {"s": each} for name, each in seconds.items()},
        "peak_mib": round(peak, 1),
        "peak_mib_tenfold": round(tenfold, 1),
    }
    print(json.dumps(result))
    raise SystemExit(0 if rate >= RATE and memory <= MEMORY else 1)


if __name__ == "__main__":
    main()
