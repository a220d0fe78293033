"""`penstock wal readers drop`: forgets a reader, so that segments need not wait for it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, Json, Set, Yes
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.wal.inspect import describe_lag, describe_reader
from penstock.cli.wal.streams import require_stream

Stream = Annotated[str, typer.Option("--stream", "-s", metavar="S", help="The stream.", show_default=False)]


def drop(
    stream: Stream,
    reader: Annotated[
        str,
        typer.Option(
            "--reader", metavar="R", help="The reader, as the list names it: PIPELINE/STREAM.", show_default=False
        ),
    ],
    file: ReceiverFile = None,
    directory: Directory = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget a reader whose pipeline is gone. Segments that only it still needed are deleted.

    \b
    Examples:
      penstock wal readers drop --directory received --stream orders --reader old/orders
      penstock wal readers drop lake.yaml --stream orders --reader old/orders --yes

    First says what it has not read. If its pipeline runs again, it registers itself again; if a segment that it needs
    was deleted meanwhile, it stops and says so.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import count, print_json
        from penstock.core.names import suggest
        from penstock.errors import UNTOUCHED, InputError
        from penstock.wal import readers
        from penstock.wal.lag import measure_lag

        folder = require_stream(place, stream)
        known = readers.read_registry(folder).readers
        if reader not in known:
            raise InputError(
                f"the log of '{stream}' has no reader '{reader}'; {suggest(reader, known, 'readers')}",
                safe=UNTOUCHED,
                next_step=f"list them: penstock wal readers list FILE --stream {stream}",
            )
        lag = measure_lag(folder, time.time_ns() // 1000)
        found = [describe_reader(each) for each in lag.readers if each.name == reader] if lag else []
        lines = [f"{stream}: reader {reader}: {describe_lag(each)}." for each in found]
        lines.append(
            "Segments wait for it no longer: what only it has not read is deleted."
            if len(known) > 1
            else "It is the only reader: everything is kept until another pipeline reads the stream."
        )
        confirm(lines, yes=yes, to_stderr=as_json)
        readers.drop(folder, reader)
        deleted = readers.delete_read(folder)
        if as_json:
            print_json({"directory": place.directory, "stream": stream, "dropped": reader, "deleted": deleted})
        else:
            print(f"{stream}: dropped reader {reader}; {count(len(deleted), 'segment')} deleted")
