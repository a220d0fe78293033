"""`penstock token list`: lists the receiver's tokens, without their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.shared.parameters import EnvFile, Json, Set
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.service.tokens import Token


def list_(
    file: ReceiverFile = None,
    directory: Directory = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List tokens: name, scopes, streams, when each was created and when it expires. Secrets are not kept.

    \b
    Examples:
      penstock token list --directory received
      penstock token list receiver.yaml --json
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from datetime import UTC, datetime

        from penstock.cli.shared.render import align, print_json
        from penstock.service.tokens import TokenFile

        now = datetime.now(UTC)
        tokens = TokenFile(place.directory)
        found = tokens.list()
        if as_json:
            documents = [document_of(token, now) for token in found]
            print_json({"directory": place.directory, "tokens": documents, "needed": not tokens.is_empty}, indent=2)
        elif found:
            head = ("NAME", "SCOPES", "STREAMS", "CREATED", "EXPIRES")
            print("\n".join(align([head, *(_cells(token, now) for token in found)])))
        elif tokens.is_empty:
            print(f"No tokens in {place.directory}: the receiver answers everybody on this machine, and no other.")
        else:
            print(f"No tokens in {place.directory} any more: the receiver refuses every request.")


def describe(token: Token, now: datetime) -> str:
    """`ingest, read; streams orders, items; expires 2026-12-24 12:00Z`."""
    _, scopes, streams, _, expires = _cells(token, now)
    until = "never expires" if token.expires is None else f"expires {expires}"
    return f"{scopes}; {'all streams' if token.streams is None else f'streams {streams}'}; {until}"


def document_of(token: Token, now: datetime) -> dict[str, Any]:
    """A token as JSON, without anything secret."""
    from penstock.core.messages import stamp

    return {
        "name": token.name,
        "scopes": sorted(token.scopes),
        "streams": None if token.streams is None else [{"stream": stream} for stream in token.streams],
        "created": None if token.created is None else stamp(token.created),
        "expires": None if token.expires is None else stamp(token.expires),
        "has_expired": token.has_expired(now),
    }


def _cells(token: Token, now: datetime) -> tuple[str, ...]:
    expires = "never" if token.expires is None else f"{token.expires:%Y-%m-%d %H:%M}Z"
    return (
        token.name,
        ", ".join(sorted(token.scopes)),
        "all" if token.streams is None else ", ".join(token.streams),
        "" if token.created is None else f"{token.created:%Y-%m-%d %H:%M}Z",
        f"{expires} (expired)" if token.has_expired(now) else expires,
    )
