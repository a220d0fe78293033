"""Rows sent over HTTP, the log's append, and rows through penstock's own receiver into a lake.

(a) A million orders of a lake table, sent by the http sink to a receiver that only reads and acknowledges, beside a
bare loop that reads the same rows, encodes and compresses the same chunks with the same code, and sends them with
httpx. penstock is warm; it must take at most 1.3 times as long. (b) The log's append with fsync by 8 clients in one
process, beside plain write and fsync of the same bytes in groups of the same size: at most 1.5 times as long. (c) The
same rows to `penstock serve`, and from its log into another lake: rows a second, from the first run's begin to the
second one's end. In turns, medians. Memory (peak of the summed PSS of the sender's processes) must stay flat: at most
1.25 times as much with four times the rows, in one more run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path

import httpx
import pyarrow.parquet as pq
from benchmarks import _lake as lake
from benchmarks._contenders import told
from benchmarks._http_receiver import HttpReceiver
from benchmarks._processes import spending
from benchmarks._serve import Served, rows_in_lake
from benchmarks._verdict import most
from benchmarks._wal_append import measure_append
from benchmarks._warm import Kept, Warm

from penstock.links.http import protocol
from penstock.sinks.http.encode import Encoding, encode_rows

SENDING, APPENDING, MEMORY = 1.3, 1.5, 1.25
#: rows and files of the table; so many times the rows show whether memory is flat
ROWS, FILES, MANY = 1_000_000, 8, 4
#: rows of a request, as bytes bound it in both
CHUNK_ROWS = 15_000
LEVEL = 1

SEND = """\
  {name}:
    source: {{type: lake, warehouse: lake, namespace: {namespace}, catalog: {{name: lake}}}}
    sink: {{type: http, url: "{url}", chunk_rows: {chunk_rows}, chunk_bytes: 64MiB, level: {level}}}
    streams:
      orders: {{into: {name}}}
"""
LAND = """\
  {name}:
    source: {{type: wal, directory: received}}
    sink: {{type: lake, warehouse: landed, namespace: {name}, catalog: {{name: landed}}}}
    streams:
      {stream}:
        columns:
          id: int64
          customer_id: int32
          status: string
          amount: decimal(12,2)
          note: string
          payload: string
          created_at: timestamptz
          updated_at: timestamptz
"""


def send_plainly(url: str, files: list[Path]) -> float:
    """Seconds in which one loop has read, encoded, compressed and sent every row."""
    begun = time.perf_counter()
    with httpx.Client(timeout=60) as client:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(CHUNK_ROWS, columns=lake.SCHEMA.names):
                    body = bytes(encode_rows(batch, Encoding(), "\n").data)
                    headers = {
                        "Idempotency-Key": uuid.uuid4().hex,
                        "Content-Type": protocol.NDJSON,
                        "Content-Encoding": "gzip",
                        protocol.ROWS: str(batch.num_rows),
                    }
                    content = gzip.compress(body, LEVEL, mtime=0)
                    client.post(f"{url}/v1/streams/plain/batches", content=content, headers=headers).raise_for_status()
    return time.perf_counter() - begun


class Bench:
    """Two tables, and a pipeline for each run."""

    def __init__(self, folder: Path, url: str, served: Served, rows: int, runs: int) -> None:
        self.folder, self.url, self.served, self.rows = folder, url, served, rows
        self.files: list[Path] = []
        for namespace, count in (("shop", rows), ("many", rows * MANY)):
            lander = lake.Lander(folder, namespace)
            lake.fill(lander, rows=count, landings=FILES if namespace == "shop" else FILES * MANY)
            if namespace == "shop":
                self.files = sorted(lander.data.rglob("*.parquet"))
        text = "".join(self._pipelines(run) for run in range(-1, runs)) + self._send("sendmany", "many", url)
        (folder / "bench.yaml").write_text(f"pipelines:\n{text}")

    def _send(self, name: str, namespace: str, url: str) -> str:
        return SEND.format(name=name, namespace=namespace, url=url, chunk_rows=CHUNK_ROWS, level=LEVEL)

    def _pipelines(self, run: int) -> str:
        number = run + 1
        through = self._send(f"through{number}", "shop", self.served.url)
        land = LAND.format(name=f"land{number}", stream=f"through{number}")
        return self._send(f"send{number}", "shop", self.url) + through + land

    def warm(self) -> Warm:
        return Warm(self.folder / "bench.yaml", dict(os.environ))

    def send(self, process: Kept, receiver: HttpReceiver, name: str, rows: int) -> tuple[float, float]:
        """Seconds and peak in MiB of one run. SystemExit unless every row was sent."""
        with spending(process.pid) as cost:
            said = process.tell(name)
        if (found := receiver.rows(name)) != rows:
            raise SystemExit(f"{rows:,} rows were to be sent, and {found:,} were")
        print(f"    {told(said['steps'])}")
        return float(said["seconds"]), cost[0].peak

    def through(self, process: Kept, number: int) -> float:
        """Seconds from the sender's begin until the rows are in the lake behind the receiver."""
        begun = time.perf_counter()
        sent, landed = (process.tell(f"{name}{number}")["seconds"] for name in ("through", "land"))
        seconds = time.perf_counter() - begun
        if (found := rows_in_lake(self.folder, f"land{number}", f"through{number}")) != self.rows:
            raise SystemExit(f"{self.rows:,} rows were to be in the lake, and {found:,} are")
        print(f"    sent in {sent:.2f} s, landed in {landed:.2f} s")
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    chosen = parser.parse_args()
    seconds: dict[str, list[float]] = {"httpx": [], "penstock_sink": [], "penstock_receiver": []}
    peaks: list[float] = []
    with tempfile.TemporaryDirectory(prefix="penstock-http-") as made, HttpReceiver() as receiver:
        folder = Path(made)
        with Served(folder) as served:
            print(f"{chosen.rows:,} rows; {chosen.runs} runs, and one to warm up", flush=True)
            bench = Bench(folder, receiver.url, served, chosen.rows, chosen.runs)
            with bench.warm() as process:
                for run in range(-1, chosen.runs):
                    took = {"httpx": send_plainly(receiver.url, bench.files)}
                    took["penstock_sink"], peak = bench.send(process, receiver, f"send{run + 1}", chosen.rows)
                    took["penstock_receiver"] = bench.through(process, run + 1)
                    peaks.append(peak)
                    for name, each in took.items():
                        print(f"  run {run + 1:2} {name:<18} {each:8.2f} s", flush=True)
                        if run >= 0:
                            seconds[name].append(each)
                # Last: memory that a process has once taken stays with it.
                tenfold = bench.send(process, receiver, "sendmany", chosen.rows * MANY)[1]
        plain, log = measure_append(folder / "append", chosen.runs)
    found = {name: statistics.median(each) for name, each in seconds.items()} | {
        "plain_fsync": plain,
        "wal_append": log,
    }
    sending, appending = found["penstock_sink"] / found["httpx"], log / plain
    memory = tenfold / max(peaks)
    print("must hold:")
    print(most("seconds of the sink, times those of the loop", sending, SENDING))
    print(most("seconds of the log's append, times those of plain writes", appending, APPENDING))
    print(most(f"memory with {MANY} times the rows ({tenfold:,.0f} MiB), times as much", memory, MEMORY))
    result = {
        "contenders": {name: {"s": round(each, 3)} for name, each in found.items()},
        "peak_mib": round(max(peaks), 1),
        "rows_per_s": round(chosen.rows / found["penstock_receiver"]),
    }
    print(json.dumps(result))
    raise SystemExit(0 if sending <= SENDING and appending <= APPENDING and memory <= MEMORY else 1)


if __name__ == "__main__":
    main()
