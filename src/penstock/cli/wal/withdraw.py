"""`penstock wal withdraw`: withdraws the open slice of a producer, whose chunks are never read then."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.parameters import EnvFile, Json, Set, Yes
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.wal.streams import require_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cli.shared.receiver_directory import Place
    from penstock.wal.log import Log

#: the environment variable with a token for a running receiver
TOKEN = "PENSTOCK_TOKEN"
#: seconds until a running receiver must answer
ANSWER_SECONDS = 60.0

Stream = Annotated[str, typer.Option("--stream", "-s", metavar="S", help="The stream.", show_default=False)]


def withdraw(
    stream: Stream,
    producer: Annotated[
        str,
        typer.Option(
            "--producer", metavar="P", help="The producer: for penstock's http sink, the pipeline.", show_default=False
        ),
    ],
    file: ReceiverFile = None,
    directory: Directory = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help=f"Ask the receiver that runs there, with the token in ${TOKEN}, instead of FILE or --directory.",
            show_default=False,
        ),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Withdraw the open slice of a producer: its chunks are never read, and the producer may send another slice.

    \b
    Examples:
      penstock wal withdraw --url http://127.0.0.1:8737 --stream orders --producer shop
      penstock wal withdraw --directory received --stream orders --producer shop
      penstock wal withdraw receiver.yaml --stream orders --producer shop --yes

    For a producer that cannot finish its slice, because its spool is gone. A pipeline of penstock withdraws its slice
    by `penstock state recover`. A whole slice cannot be withdrawn: it may have been read.

    While a receiver runs, it holds the logs: ask it with --url, or stop it first.
    """
    if url is not None and file is None and directory is None:
        from penstock.cli.shared.error_report import report_errors

        with report_errors("", as_json=as_json):
            _at_receiver(url, stream, producer, yes=yes, as_json=as_json)
        return
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        if url is not None:
            from penstock.errors import UNTOUCHED, InputError

            raise InputError(
                "name the receiver by one of FILE, --directory and --url",
                safe=UNTOUCHED,
                next_step="leave the others out",
            )
        _on_disk(place, stream, producer, yes=yes, as_json=as_json)


def _on_disk(place: Place, stream: str, producer: str, *, yes: bool, as_json: bool) -> None:
    from penstock.cli.wal.inspect import describe_slice
    from penstock.errors import StreamFailed
    from penstock.wal.batches import Withdrawal
    from penstock.wal.ledger import Producer, Take

    folder = require_stream(place, stream)
    with closing(_open(folder, place.url, stream, producer)) as log:
        producers = log.ledger.producers
        held = producers.get(producer, Producer())
        opened = _require_open(
            stream, producer, {"last": describe_slice(held.last), "open": describe_slice(held.open)}, producers
        )
        _confirm(stream, producer, opened, yes=yes, as_json=as_json)
        outcome = log.append([Withdrawal(producer, opened["slice"])])[0]
    if not isinstance(outcome, Take):
        raise StreamFailed(
            f"the slice was not withdrawn: {getattr(outcome, 'reason', outcome)}",
            safe="The log is as it was.",
            next_step="make room on the disk, or repair it, and run the command again",
            stream=stream,
        )
    _say_done(stream, producer, opened, as_json)


def _open(folder: str, url: str, stream: str, producer: str) -> Log:
    from penstock.errors import ConnectionFailed
    from penstock.wal.log import LogOptions
    from penstock.wal.opening import LogHeld, open_log

    try:
        return open_log(folder, LogOptions(), lambda: time.time_ns() // 1000)
    except LogHeld as held:
        raise ConnectionFailed(
            f"{held.what}: a receiver is running",
            safe=held.safe,
            next_step=f"ask it: penstock wal withdraw --url {url} --stream {stream} --producer {producer}; "
            "or stop it, and run this command again",
        ) from None


def _require_open(
    stream: str, producer: str, held: Mapping[str, Any], producers: Iterable[str] | None = None
) -> dict[str, Any]:
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError

    if isinstance(opened := held.get("open"), dict):
        return opened
    last = held.get("last")
    if last:
        what = f"its last one, slice {last['number']} ({last['slice']}), is whole and may have been read"
    else:
        what = "nothing of it is held"
        if producers is not None:
            what += f"; {suggest(producer, producers, 'producers')}"
    raise InputError(
        f"producer '{producer}' has no open slice in stream '{stream}': {what}",
        safe=UNTOUCHED,
        next_step="none: the producer may send its next slice",
    )


def _confirm(stream: str, producer: str, opened: Mapping[str, Any], *, yes: bool, as_json: bool) -> None:
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.render import count

    held = f"{opened['held']} of {count(opened['chunks'], 'chunk')}"
    lines = [
        f"{stream}: slice {opened['number']} ({opened['slice']}) of producer {producer} is open: {held} held.",
        "Withdrawn, these chunks are never read. The producer must send their rows again, in this slice or another.",
    ]
    confirm(lines, yes=yes, to_stderr=as_json)


def _say_done(stream: str, producer: str, opened: Mapping[str, Any], as_json: bool) -> None:
    from penstock.cli.shared.render import count, print_json

    if as_json:
        print_json(
            {
                "stream": stream,
                "producer": producer,
                "withdrawn": {"slice": opened["slice"], "number": opened["number"], "chunks": opened["held"]},
            }
        )
        return
    chunks = count(opened["held"], "chunk")
    print(f"{stream}: withdrew slice {opened['number']} of producer {producer}, of which {chunks} had been received")


# ---------------------------------------------------------------- through a receiver that runs


def _at_receiver(url: str, stream: str, producer: str, *, yes: bool, as_json: bool) -> None:
    from penstock.links.http import protocol

    held = _ask(url, "GET", protocol.producer_path(stream, producer))
    opened = _require_open(stream, producer, held)
    _confirm(stream, producer, opened, yes=yes, as_json=as_json)
    _ask(url, "DELETE", protocol.slice_path(stream, producer, str(opened["slice"])))
    _say_done(stream, producer, opened, as_json)


def _ask(url: str, method: str, path: str) -> dict[str, Any]:
    """The receiver's answer. ConnectionFailed if there is none, InputError if it refuses."""
    import json

    import httpx

    from penstock.errors import UNTOUCHED, ConnectionFailed, InputError

    token = os.environ.get(TOKEN)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.request(method, f"{url.rstrip('/')}{path}", headers=headers, timeout=ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        asked = "" if method == "GET" else " Whether the slice was withdrawn is not known."
        raise ConnectionFailed(
            f"the receiver at {url} did not answer: {str(error) or type(error).__name__}",
            safe=f"{UNTOUCHED if method == 'GET' else ''}{asked}".strip(),
            next_step="check the address and that `penstock serve` runs, and run the command again",
        ) from None
    try:
        document = json.loads(answer.content)
    except ValueError:
        document = None
    if answer.status_code == 200 and isinstance(document, dict):
        return document
    said = document if isinstance(document, dict) else {}
    reason = str(said.get("detail") or said.get("title") or answer.reason_phrase)[:500]
    by_status = {
        401: f"put a token with the scope ingest into ${TOKEN}: penstock token create --scope ingest",
        403: "use a token with the scope ingest that is not bound to other streams",
    }
    raise InputError(
        f"the receiver at {url} answered {answer.status_code}: {reason}",
        safe=UNTOUCHED,
        next_step=by_status.get(answer.status_code) or str(said.get("next_step") or "check stream, producer and URL"),
    )
