"""`penstock status`: how far each stream is. Starts no Spark and connects to no source or sink."""

from __future__ import annotations

from penstock.cli.shared.parameters import EnvFile, File, Json, Set, Streams
from penstock.cli.shared.report import reported


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
    with reported(file, as_json=as_json):
        from penstock.cli.shared.standing import pipeline_lines
        from penstock.cli.shared.stored import print_standing

        print_standing(file, None, stream, sets=set_ or (), as_json=as_json, text=pipeline_lines, worker=True)
