"""The shop, synced every ten minutes by Airflow. Lies in Airflow's `dags` folder; SHOP_FILE names the pipeline file."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run moves all that is new, whenever it comes: there is nothing to catch up on
    max_active_runs=1,  # a second one would only be told that the pipeline is held
)
def shop() -> None:
    # Again after any failure: a run resumes where it stood, and delivers nothing twice.
    @task(retries=3, retry_delay=timedelta(minutes=2))
    def sync() -> int:
        import penstock  # here, so that parsing this file stays quick

        summary = penstock.sync(os.environ.get("SHOP_FILE", "shop.yaml"), time_limit=1800)
        return summary.rows

    sync()


shop()
