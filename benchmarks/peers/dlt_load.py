"""A table by dlt into Parquet files. Runs in the peers' own environment.

    dlt_load.py TABLE FOLDER BACKEND [incremental]

The address is `$DATABASE_URL`; the files are below FOLDER/out, the state is in FOLDER. BACKEND is `pyarrow`,
`connectorx`, or `connectorx_stream`: connectorx's batches one by one, where it would have all rows in memory at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dlt  # type: ignore[import-not-found]  # it lives in the peers' environment
from dlt.sources.sql_database import sql_table  # type: ignore[import-not-found]  # it lives in the peers' environment

#: rows of a batch; dlt's own 50,000 is slower
CHUNK = 100_000


def main() -> None:
    table, folder, backend = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    kind, _, stream = backend.partition("_")
    rows = sql_table(
        os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg2:", 1),
        table=table,
        backend=kind,
        chunk_size=CHUNK,
        backend_kwargs={"return_type": "arrow_stream"} if stream else None,
        incremental=dlt.sources.incremental("updated_at") if "incremental" in sys.argv[4:] else None,
    )
    pipeline = dlt.pipeline(
        "peer",
        pipelines_dir=str(folder / "state"),
        destination=dlt.destinations.filesystem(f"file://{folder / 'out'}"),
        dataset_name="shop",
    )
    pipeline.run(rows, loader_file_format="parquet").raise_on_failed_jobs()


if __name__ == "__main__":
    main()
