"""Five million orders (`--rows`) out of a lake into Parquet in a bucket, beside the same run into a local folder.

And beside a bare upload of that run's files by boto3. The bucket is versitygw's, on this machine. penstock is warm. In
turns (`--runs`), medians. penstock into the bucket must take at most as long as into the folder, and 1.3 times the bare
upload. Rows that did not come end it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import boto3
import pyarrow.parquet as pq
from benchmarks import _lake as lake
from benchmarks._warm import Warm
from tests.harness.versitygw import ACCESS_KEY, REGION, SECRET_KEY, Gateway

BOUND = 1.3
ROWS, FILES = 5_000_000, 8

PIPELINE = """\
  {name}:
    source: {{type: lake, warehouse: lake, namespace: {namespace}, catalog: {{name: lake}}}}
    sink: {{type: files, directory: "{directory}"{more}}}
    streams:
      orders: {{}}
"""
S3 = ', s3: {{endpoint: "{endpoint}", region: {region}, access_key_id: {key}, secret_access_key: {secret}}}'


def write_pipelines(folder: Path, runs: int, server: Gateway, bucket: str) -> Path:
    s3 = S3.format(endpoint=server.endpoint, region=REGION, key=ACCESS_KEY, secret=SECRET_KEY)
    text = "pipelines:\n"
    for run in range(-1, runs):
        # The first run of each warms up, with few rows.
        namespace = "few" if run < 0 else "many"
        for which, directory, more in (("local", "out/{}", ""), ("s3", f"s3://{bucket}/{{}}", s3)):
            name = f"{which}_{run + 1}"
            text += PIPELINE.format(name=name, namespace=namespace, directory=directory.format(name), more=more)
    path = folder / "bench.yaml"
    path.write_text(text)
    return path


def upload(server: Gateway, bucket: str, folder: Path, prefix: str) -> float:
    """The seconds of a bare upload of every file."""
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    client = boto3.client("s3", endpoint_url=server.endpoint, region_name=REGION, **keys)
    begun = time.perf_counter()
    for path in sorted(folder.glob("*.parquet")):
        client.upload_file(str(path), bucket, f"{prefix}/{path.name}")
    return time.perf_counter() - begun


def rows_of(server: Gateway, bucket: str, prefix: str) -> int:
    """The rows of the files below a prefix, from their footers, where the server keeps its objects."""
    folder = server.folder / "objects" / bucket / prefix
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    chosen = parser.parse_args()
    seconds: dict[str, list[float]] = {"boto3": [], "penstock_local": [], "penstock_s3": []}
    server = Gateway()
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-s3-bench-") as name:
            folder, bucket = Path(name), server.bucket()
            for namespace, rows in (("few", 20_000), ("many", chosen.rows)):
                lake.fill(lake.Lander(folder, namespace), rows=rows, landings=FILES)
            file = write_pipelines(folder, chosen.runs, server, bucket)
            with Warm(file, dict(os.environ)) as warm:
                for run in range(chosen.runs + 1):
                    rows = chosen.rows if run else 20_000
                    found = {"penstock_local": warm.run(f"local_{run}")["seconds"]}
                    found["penstock_s3"] = warm.run(f"s3_{run}")["seconds"]
                    found["boto3"] = upload(server, bucket, folder / "out" / f"local_{run}" / "orders", f"bare_{run}")
                    for prefix in (f"s3_{run}/orders", f"bare_{run}"):
                        if (came := rows_of(server, bucket, prefix)) != rows:
                            raise SystemExit(f"{prefix} has {came} rows, not {rows}")
                    if run:
                        print(f"  {run}: {', '.join(f'{who} {each:.1f} s' for who, each in found.items())}", flush=True)
                        for who, each in found.items():
                            seconds[who].append(each)
    finally:
        server.close()
    medians = {who: round(statistics.median(each), 2) for who, each in seconds.items()}
    most = medians["penstock_local"] + BOUND * medians["boto3"]
    kept = medians["penstock_s3"] <= most
    print(f"into the bucket {medians['penstock_s3']:.1f} s; must be at most {most:.1f} s: {'yes' if kept else 'NO'}")
    print(json.dumps({"contenders": {who: {"s": each} for who, each in medians.items()}}))
    if not kept:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
