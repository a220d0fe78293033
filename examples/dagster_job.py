"""The shop as a Dagster asset, synced every ten minutes. `dagster dev -f dagster_job.py`; SHOP_FILE names the file."""

import os

import dagster as dg

import penstock


# Retry after any failure: a run resumes where the last one stopped and delivers nothing twice.
@dg.asset(retry_policy=dg.RetryPolicy(max_retries=3, delay=120))
def shop(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    with penstock.run(os.environ.get("SHOP_FILE", "shop.yaml")) as run:
        for message in run:
            if message.type == "state":
                context.log.info(f"{message.stream}: slice {message.number}, {message.rows} rows")
        summary = run.result().raise_for_failure()
    return dg.MaterializeResult(metadata={"rows": summary.rows, "has_more": summary.has_more})


job = dg.define_asset_job("shop_job", [shop])
definitions = dg.Definitions(
    assets=[shop],
    jobs=[job],
    schedules=[dg.ScheduleDefinition(job=job, cron_schedule="*/10 * * * *")],
)
