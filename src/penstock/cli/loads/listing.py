"""`penstock loads list`: how far the first load of each table is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.outbox_place import Place, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams

if TYPE_CHECKING:
    from penstock.ports import StreamState
    from penstock.sources.outbox.load.states import LoadState

Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table", "-t", metavar="T", help="Only this table, as the list names it. May be repeated.", show_default=False
    ),
]


def list_(
    file: File,
    pipeline: Pipeline = None,
    stream: Streams = None,
    table: Tables = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the first load of each table: its state, rows, bytes and times.

    \b
    Examples:
      penstock loads list images.yaml
      penstock loads list images.yaml --stream images --json

    `pending` also where the declaration of a table has changed since it was loaded: the next run loads it again.
    `failed`: it was being loaded when its stream failed; the next run goes on. `dropped`: it was given up or cleared.
    `waiting`: for the files of a dump. `trial`: only the first rows of a dump were loaded.
    The rows and bytes of a table are estimated; bytes are those on the server's disk.
    """
    with outbox_place(file, set_, pipeline, "penstock loads list FILE", as_json=as_json) as place:
        from penstock.cli.shared.render import align, print_json
        from penstock.config.pipeline_choice import require_streams

        require_streams(stream or (), place.streams)
        documents = [
            each
            for each in _documents(place)
            if (not stream or each["stream"] in stream) and (not table or each["table"] in table)
        ]
        if as_json:
            print_json({"pipeline": place.pipeline, "loads": documents}, indent=2)
        elif documents:
            print("\n".join(align([_line(each) for each in documents])))
        else:
            print(f"{place.pipeline}: no loads: `first_load: false` leaves out the rows that exist already")


def _documents(place: Place) -> list[dict[str, Any]]:
    from penstock.sources.outbox.load.declared import compare
    from penstock.sources.outbox.marks import OutboxMark

    found = []
    states, failing = _read_store(place)
    for name, loads in place.loads().items():
        last = states[name].last if name in states else None
        known = OutboxMark.of(last.mark).loads if last and last.mark else ()
        waiting = {each.name for each in loads if each.hold is not None and each.hold.waits}
        found += [
            _document(name, each, failed=name in failing) | ({"state": "waiting"} if each.name in waiting else {})
            for each in compare(known, loads)[0]
        ]
    return found


def _read_store(place: Place) -> tuple[dict[str, StreamState], set[str]]:
    """The state of each stream, and the streams that failed last."""
    from contextlib import closing

    from penstock import wiring

    if wiring.missing_store(place.file) is not None:
        return {}, set()
    with closing(wiring.open_store(place.file)) as store:
        states = {name: store.state(place.pipeline, name) for name in place.streams}
        failing = {name for name, failure in store.failures(place.pipeline).items() if failure.times}
    return states, failing | {name for name, state in states.items() if state.stopped}


def _document(stream: str, state: LoadState, *, failed: bool) -> dict[str, Any]:
    from datetime import UTC, datetime

    from penstock.core.messages import stamp

    def time(micros: int | None) -> str | None:
        return None if micros is None else stamp(datetime.fromtimestamp(micros / 1_000_000, UTC))

    return {
        "stream": stream,
        "table": state.name,
        "state": "failed" if failed and state.state == "loading" else state.state,
        "rows": state.rows,
        "expected": max(state.rows, state.expected) if state.state != "pending" else None,
        "bytes": state.bytes_read,
        "expected_bytes": state.bytes if state.state != "pending" else None,
        "columns": list(state.columns),
        "after": None if state.after is None else list(state.after),
        "began_at": time(state.began),
        "ended_at": time(state.ended),
    }


def _line(document: dict[str, Any]) -> list[str]:
    from penstock.cli.shared.render import size

    rows, state = "", document["state"]
    if state == "complete":
        rows = f"{document['rows']:,} rows, {size(document['bytes'])}, ended {document['ended_at']}"
    elif document["began_at"] is not None:
        rows = f"{document['rows']:,} of about {document['expected']:,} rows, {size(document['bytes'])} of about "
        rows += f"{size(document['expected_bytes'])}, began {document['began_at']}"
    return [document["stream"], document["table"], state, rows]
