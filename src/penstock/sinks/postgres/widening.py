"""Which types of Postgres hold every value of another one exactly. A strict table: what is not in it is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: decimal digits of the greatest value
_INTEGERS: Mapping[str, int] = {"smallint": 5, "integer": 10, "bigint": 19}
_FLOATS: Mapping[str, frozenset[str]] = {
    "smallint": frozenset({"real", "double precision"}),
    "integer": frozenset({"double precision"}),
    "real": frozenset({"double precision"}),
}
#: types whose modifier is a length, or digits of a second
_LIMITED = frozenset(
    {"character varying", "character", "bit varying", "interval"}
    | {f"{kind} {zone} time zone" for kind in ("time", "timestamp") for zone in ("with", "without")}
)
#: what each is called without one; `character` alone is one letter
_UNLIMITED: Mapping[str, str] = {"character": "bpchar"}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_MODIFIER = re.compile(r"\((\d+)\)")


def widens(was: str, now: str) -> bool:
    """Whether `now` is another type than `was` and holds each of its values. Types are as `format_type` spells them."""
    if was == now:
        return False
    if was.endswith("[]") and now.endswith("[]"):
        return widens(was[:-2], now[:-2])
    if was in _INTEGERS and now in _INTEGERS:
        return _INTEGERS[was] < _INTEGERS[now]
    if now in _FLOATS.get(was, ()):
        return True
    if _NUMERIC.fullmatch(now):
        return _numeric(was, now)
    return _length(was, now)


def _numeric(was: str, now: str) -> bool:
    after = _NUMERIC.fullmatch(now)
    before = _NUMERIC.fullmatch(was)
    if after is None or (before is None and was not in _INTEGERS):
        return False
    if after[1] is None:
        return True
    whole, scale = int(after[1]) - int(after[2]), int(after[2])
    if before is None:
        return scale >= 0 and whole >= _INTEGERS[was]
    return before[1] is not None and int(before[2]) <= scale and int(before[1]) - int(before[2]) <= whole


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
