"""`penstock quarantine drop`: deletes quarantined rows."""

from __future__ import annotations

from penstock.cli.quarantine.sinks import Ids
from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes


def drop(
    file: File,
    stream: Streams = None,
    id_: Ids = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete quarantined rows. They are not in the sink, and the source does not send them again by itself.

    \b
    Examples:
      penstock quarantine drop shop.yaml --stream orders
      penstock quarantine drop shop.yaml --id 17 --yes

    Prints how many rows will be deleted and asks for confirmation.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.quarantine.sinks import open_quarantine
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import count, print_json

        command = "penstock quarantine drop FILE"
        with open_quarantine(file, set_ or (), pipeline, command, stream) as (loaded, name, _sink, quarantine):
            counts, _ = quarantine.quarantined(stream or (), limit=0)
            if counts:
                which = f"rows {', '.join(map(str, id_))}" if id_ else "all of these rows"
                lines = [f"{name}/{each}: {count(rows, 'row')} in quarantine" for each, rows in counts.items()]
                confirm([*lines, f"Permanently deleted: {which}."], yes=yes, to_stderr=as_json)
            dropped = quarantine.drop(stream or (), id_ or ()) if counts else 0
        if as_json:
            print_json({"file": loaded.path, "pipeline": name, "dropped": dropped})
        else:
            print(f"{name}: {count(dropped, 'row')} dropped from the quarantine")
