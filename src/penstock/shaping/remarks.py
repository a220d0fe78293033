"""What a shape means for whoever trusts a stream, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.ports import Remark
from penstock.shaping.rules import Rules

_LEFT = {
    "null": "nothing of {} is delivered",
    "redact": "of {} only `***` is delivered",
    "last4": "of {} only the last four characters are delivered",
    "email": "of {} only the domain is delivered",
}


def remarks(rules: Rules, key: tuple[str, ...], key_lost: bool) -> Iterator[Remark]:
    """`key`: what identifies a row at the source; `key_lost`: it does not once it has been shaped."""
    keyed = [name for name, how in rules.hash.items() if how == "hmac-sha256"]
    bare = [name for name, how in rules.hash.items() if how == "sha256"]
    if keyed:
        yield Remark("guarantee", f"of {_listed(keyed)} only a digest is delivered, which needs the salt to be guessed")
    if bare:
        what = f"of {_listed(bare)} only a digest is delivered, but whoever guesses a value can find it"
        yield Remark("gap", f"{what}; `hmac-sha256` with a `salt` would not let them")
    for name, how in rules.mask.items():
        yield Remark("guarantee", _LEFT[how].format(name))
    if rules.where is not None:
        yield Remark(
            "gap",
            "rows for which `where` of the shape is not true are not delivered; one that an update takes out of it "
            "stays as it was last delivered",
        )
    if rules.cast and rules.on_error == "null":
        yield Remark("gap", f"values of {_listed(rules.cast)} that their new type cannot hold are delivered as NULL")
    if key_lost:
        what = f"the primary key ({', '.join(key)}) is not delivered as it is: the sink knows of no key"
        yield Remark("gap", f"{what} unless it is told one")


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
