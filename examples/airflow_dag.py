"""Syncs the shop every ten minutes. Put it into Airflow's `dags` folder; SHOP_FILE names the pipeline file."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run moves everything that is new, so there are no intervals to catch up on
    max_active_runs=1,  # a second run would only exit with code 4
)
def shop() -> None:
    # Retry after any failure: a run resumes where the last one stopped and delivers nothing twice.
    @task(retries=3, retry_delay=timedelta(minutes=2))
    def sync() -> int:
        import penstock  # imported here to keep parsing of this file fast

        summary = penstock.sync(os.environ.get("SHOP_FILE", "shop.yaml"), time_limit=1800)
        return summary.rows

    sync()


shop()
