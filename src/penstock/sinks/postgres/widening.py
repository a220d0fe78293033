"""Which types of Postgres hold every value of another one exactly. A strict table: what is not in it is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.core import widening as types
from penstock.core.types import INTEGERS, Decimal
from penstock.links.postgres.types import number_type

#: types whose modifier is a length, or digits of a second
_LIMITED = frozenset(
    {"character varying", "character", "bit varying", "interval"}
    | {f"{kind} {zone} time zone" for kind in ("time", "timestamp") for zone in ("with", "without")}
)
#: what each is called without one; `character` alone is one letter
_UNLIMITED: Mapping[str, str] = {"character": "bpchar"}
_MODIFIER = re.compile(r"\((\d+)\)")


def widens(was: str, now: str) -> bool:
    """Whether `now` is another type than `was` and holds each of its values. Types are as `format_type` spells them."""
    if was == now:
        return False
    if was.endswith("[]") and now.endswith("[]"):
        return widens(was[:-2], now[:-2])
    before, after = number_type(was), number_type(now)
    if before is not None and after is not None:
        return types.widens(before, after)
    if now == "numeric":
        return isinstance(before, Decimal) or before in INTEGERS
    return _length(was, now)


def _length(was: str, now: str) -> bool:
    kind, most = _MODIFIER.sub("", was), _MODIFIER.search(was)
    if kind == "character varying" and now in ("character varying", "text"):
        return True
    if kind not in _LIMITED or most is None:
        return False
    if now == _UNLIMITED.get(kind, kind):
        return True
    more = _MODIFIER.search(now)
    return more is not None and _MODIFIER.sub("", now) == kind and int(most[1]) < int(more[1])
