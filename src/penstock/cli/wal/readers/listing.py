"""`penstock wal readers list`: who reads each log, and what it has not read yet."""

from __future__ import annotations

import time

from penstock.cli.shared.parameters import EnvFile, Json, Set, Streams
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.wal.inspect import describe_lag, describe_reader
from penstock.cli.wal.streams import choose_streams


def list_(
    file: ReceiverFile = None,
    directory: Directory = None,
    stream: Streams = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the readers of each log, PIPELINE/STREAM each, with what they have not read yet.

    \b
    Examples:
      penstock wal readers list --directory received
      penstock wal readers list lake.yaml --stream orders --json

    Segments are kept until every reader is past them.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from penstock.cli.shared.render import print_json
        from penstock.wal.lag import measure_lag

        now = time.time_ns() // 1000
        documents = []
        for name, folder in choose_streams(place, stream).items():
            lag = measure_lag(folder, now)
            readers = [describe_reader(each) for each in lag.readers] if lag else []
            documents.append({"stream": name, "readers": readers})
            if not as_json:
                lines = [f"{name}: {each['reader']}: {describe_lag(each)}" for each in readers]
                print("\n".join(lines or [f"{name}: no readers: everything is kept until a pipeline reads it"]))
        if as_json:
            print_json({"directory": place.directory, "streams": documents}, indent=2)
        elif not documents:
            print(f"No streams in {place.directory}: nothing was sent to this receiver yet.")
