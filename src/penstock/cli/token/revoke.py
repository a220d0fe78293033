"""`penstock token revoke`: requests with a token are refused from now on."""

from __future__ import annotations

from penstock.cli.shared.parameters import EnvFile, Json, Set, Yes
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.token.create import Name


def revoke(
    name: Name,
    file: ReceiverFile = None,
    directory: Directory = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Revoke a token. Requests with it are refused at once, also by a receiver that is running.

    \b
    Examples:
      penstock token revoke --directory received --name shop
      penstock token revoke receiver.yaml --name shop --yes

    After the last token is revoked, every request is refused until another one is created.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from datetime import UTC, datetime

        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import print_json
        from penstock.cli.token.listing import describe
        from penstock.service.tokens import TokenFile

        tokens = TokenFile(place.directory)
        known = {token.name: token for token in tokens.list()}
        if name in known:
            lines = [f"Token '{name}': {describe(known[name], datetime.now(UTC))}."]
            confirm([*lines, "Requests with it will be refused."], yes=yes, to_stderr=as_json)
        tokens.revoke(name)
        left = len(tokens.list())
        if as_json:
            print_json({"directory": place.directory, "revoked": name, "left": left})
        else:
            last = "" if left else "; it was the last one, so every request is refused now"
            print(f"Revoked token '{name}'{last}.")
