"""`penstock status`: how far each stream is. Starts no Spark and connects to no source or sink."""

from __future__ import annotations

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Set, Streams


def status(
    file: File, stream: Streams = None, set_: Set = None, _env_file: EnvFile = None, as_json: Json = False
) -> None:
    """What fails and since when, how far each stream is, who runs it, and the last runs.

    \b
    Examples:
      penstock status shop.yaml
      penstock status shop.yaml --stream orders
      penstock status shop.yaml --json | jq '.pipelines[].streams[] | {stream, at}'

    For each stream that fails: its last error with its time, the next step, and how often it has failed since its
    last success. `the last run ended` counts runs that found nothing new too, so a scheduler that has died is seen.
    A warm worker is shown with its memory and its end.

    Reads the store only: no Spark, no connection to a source or sink. `penstock runs` shows the days before.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.shared.status_document import pipeline_lines
        from penstock.cli.shared.status_output import print_status

        print_status(file, None, stream, sets=set_ or (), as_json=as_json, text=pipeline_lines, worker=True)
