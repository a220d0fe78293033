"""`penstock wal verify`: reads every record of the logs, and names what is damaged or missing."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from penstock.cli.shared.parameters import EnvFile, Json, Set, Streams
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.wal.streams import choose_streams

if TYPE_CHECKING:
    from penstock.wal.verification import Fault, Verified


def verify(
    file: ReceiverFile = None,
    directory: Directory = None,
    stream: Streams = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Read every record of each log up to its durable end, and check its checksum.

    \b
    Examples:
      penstock wal verify --directory received
      penstock wal verify lake.yaml --stream orders --json

    Names each damage by stream, segment and offset: records, headers of segments, copies of the ledger, segments that
    are missing or cut off, the durable end, the list of readers, and the schemas. Changes nothing, and may run beside
    a receiver.

    The exit code is 1 if anything is damaged or missing.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from penstock.cli.shared.render import print_json

        documents, total = [], 0
        for name, folder in choose_streams(place, stream).items():
            found = _verify(folder)
            total += len(found.faults)
            documents.append(
                {
                    "stream": name,
                    "folder": folder,
                    "segments": found.segments,
                    "records": found.records,
                    "bytes": found.bytes,
                    "damages": [asdict(fault) for fault in found.faults],
                }
            )
            if not as_json:
                print("\n".join(_lines(name, found)), flush=True)
        if as_json:
            print_json({"directory": place.directory, "streams": documents, "damages": total}, indent=2)
        elif not documents:
            print(f"No streams in {place.directory}: nothing was sent to this receiver yet.")
        elif total:
            print(
                "Next: stop the receiver and put the named files back from a backup. Without one, a pipeline with "
                "`damaged: skip` on the stream reads what is whole."
            )
    raise typer.Exit(1 if total else 0)


def _verify(folder: str) -> Verified:
    """The log, and the schemas that the receiver keeps beside it."""
    from penstock.errors import InputError
    from penstock.service.schemas import read_versions
    from penstock.wal.verification import Fault, verify_log

    found = verify_log(folder)
    try:
        read_versions(folder)
    except InputError as error:
        found = replace(found, faults=(*found.faults, Fault("schemas.json", error.what)))
    return found


def _lines(stream: str, found: Verified) -> list[str]:
    from penstock.cli.shared.render import count, size

    read = f"{count(found.records, 'record')} in {count(found.segments, 'segment')}, {size(found.bytes)}"
    if not found.faults:
        return [f"{stream}: whole: {read}"]
    return [f"{stream}: DAMAGED: {read}", *(f"  {_line(fault)}" for fault in found.faults)]


def _line(fault: Fault) -> str:
    where = "" if fault.offset is None else f", offset {fault.offset}"
    on = "" if fault.end is None else f"; reading goes on at {fault.end}"
    return f"{fault.file}{where}: {fault.reason}{on}"
