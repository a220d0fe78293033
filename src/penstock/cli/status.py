"""`penstock status`: shows how far each stream is. Starts no Spark and connects to no source or sink."""

from __future__ import annotations

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Set, Streams


def status(
    file: File, stream: Streams = None, set_: Set = None, _env_file: EnvFile = None, as_json: Json = False
) -> None:
    """Show failures, how far each stream is, which process runs the pipeline, and the last runs.

    \b
    Examples:
      penstock status shop.yaml
      penstock status shop.yaml --stream orders
      penstock status shop.yaml --json | jq '.pipelines[].streams[] | {stream, at}'

    For each failing stream: its last error with its time, the next step, and how often it has failed since its last
    success. `last run ended` includes runs that found nothing new, so a scheduler that has stopped is visible. A warm
    worker is shown with its memory and the time it exits.

    Reads only the store: no Spark, no connection to a source or sink. `penstock runs` shows earlier days.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.shared.status_document import pipeline_lines
        from penstock.cli.shared.status_output import print_from_store, status_document

        print_from_store(
            file,
            None,
            status_document,
            lambda document, now, _: pipeline_lines(document, now),
            sets=set_,
            streams=stream,
            as_json=as_json,
            worker=True,
        )
