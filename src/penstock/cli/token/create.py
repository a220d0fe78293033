"""`penstock token create`: creates a token, and prints its secret once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, Json, Set, duration
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place

if TYPE_CHECKING:
    from datetime import datetime

Name = Annotated[str, typer.Option("--name", metavar="NAME", help="The token's name.", show_default=False)]


def create(
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What it allows: ingest, read, operate or admin. May be repeated.",
            show_default=False,
        ),
    ],
    file: ReceiverFile = None,
    directory: Directory = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            "-s",
            metavar="S",
            help="Allow it for this stream only. May be repeated. Default: all streams.",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            parser=duration,
            help="Refuse it after this time: 12h, 90d. Default: never.",
            show_default=False,
        ),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Create a token, with which a program may send to the receiver or ask it.

    \b
    Examples:
      penstock token create --directory received --name shop --scope ingest
      penstock token create receiver.yaml --name shop --scope ingest --stream orders --expires 90d
      penstock token create --directory received --name prometheus --scope read > token

    The secret alone is printed on standard output, once: only its hash is kept. Senders put it into the header
    `Authorization: Bearer SECRET`.

    ingest allows to send batches, to withdraw a slice and to ask what a producer has sent; read allows to see lag and
    metrics; operate allows to change what runs; admin allows everything. As soon as there is a token, every request
    needs one. A receiver that is running counts it at once.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        import sys
        from datetime import UTC, datetime

        from penstock.cli.shared.render import print_json
        from penstock.cli.token.listing import describe, document_of
        from penstock.service.tokens import TokenFile

        now = datetime.now(UTC)
        tokens = TokenFile(place.directory)
        was_empty = tokens.is_empty
        secret = tokens.create(name, scope, stream or None, _until(now, expires))
        created = next(token for token in tokens.list() if token.name == name)
        if as_json:
            print_json({"directory": place.directory, **document_of(created, now), "secret": secret})
            return
        print(secret, flush=True)
        said = [f"Created token '{name}': {describe(created, now)}. Its secret is not shown again."]
        if was_empty:
            said.append(f"It is the first one of {place.directory}: from now on every request needs a token.")
        print("\n".join(said), file=sys.stderr)


def _until(now: datetime, seconds: float | None) -> datetime | None:
    from datetime import timedelta

    from penstock.errors import UNTOUCHED, InputError

    try:
        return None if seconds is None else now + timedelta(seconds=seconds)
    except OverflowError:
        raise InputError(
            "the token would expire after the year 9999",
            safe=UNTOUCHED,
            next_step="leave --expires out: the token never expires",
        ) from None
