"""What has changed between the columns of two slices, and which columns the sink has afterwards. Pure.

A content lists in `columns` what arrives at the sink. Where that is not what the source gives, the content has a key
`drift`: `reads`, the source's own columns, and `quarantined`, those of them whose values may be put aside. The sink's
columns only grow: one that the stream no longer has stays and gets no more values, one that became narrower stays wide.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.documents import Document
from penstock.core.types import Plain, Type, parse_type
from penstock.core.widening import widens
from penstock.errors import UNTOUCHED, StreamRefused

#: what may be said of a stream: follow, stop, put aside
EVOLVE, FREEZE, QUARANTINE = POLICIES = ("evolve", "freeze", "quarantine")
#: the column of the sink that holds what has been put aside, as a JSON object of texts
ASIDE = "_quarantined"

Column = Mapping[str, Any]
Columns = Sequence[Column]


class Way(enum.StrEnum):
    """How a column has changed."""

    ADDED = "added"
    DROPPED = "dropped"
    WIDENED = "widened"  # every old value is exactly one of the new type
    NARROWED = "narrowed"  # the reverse
    RETYPED = "retyped"  # neither


@dataclass(frozen=True, slots=True)
class Change:
    """One column that is not as it was."""

    way: Way
    column: str
    #: its types, in the source's own words where it has any
    was: str | None = None
    now: str | None = None
    #: of a dropped column: the new one that it perhaps is now
    perhaps: str | None = None

    @property
    def level(self) -> str:
        """How loudly it is to be said."""
        return "info" if self.way in (Way.ADDED, Way.WIDENED) else "warning"

    def __str__(self) -> str:
        if self.way is Way.ADDED:
            return f"column {self.column} is new ({self.now})"
        if self.way is Way.DROPPED:
            renamed = f"; perhaps it was renamed to {self.perhaps}" if self.perhaps else ""
            return f"column {self.column} ({self.was}) is gone{renamed}"
        how = {Way.WIDENED: ", which is wider", Way.NARROWED: ", which is narrower"}.get(self.way, "")
        return f"column {self.column} was {self.was} and is {self.now} now{how}"


def changes(before: Columns, now: Columns) -> tuple[Change, ...]:
    """Each column that is not as it was, in the order of the old ones, then of the new ones."""
    old, new = _by_name(before), _by_name(now)
    found = [change for name in old if (change := _change(name, old[name], new.get(name)))]
    found += [Change(Way.ADDED, name, now=described(new[name])) for name in new if name not in old]
    return _renamed(found, before, now)


def _change(name: str, old: Column, new: Column | None) -> Change | None:
    if new is None:
        return Change(Way.DROPPED, name, was=described(old))
    if type_of(old) == type_of(new):
        return None
    was, now = described(old), described(new)
    if was == now:
        was, now = f"{was} as {type_of(old)}", f"{now} as {type_of(new)}"
    return Change(way(type_of(old), type_of(new)), name, was, now)


def way(was: Type, now: Type) -> Way:
    """How one type follows another."""
    if widens(was, now):
        return Way.WIDENED
    return Way.NARROWED if widens(now, was) else Way.RETYPED


def _renamed(found: Sequence[Change], before: Columns, now: Columns) -> tuple[Change, ...]:
    """One gone and one new in its place: most likely it has another name. A guess, so it is only said."""
    guesses = {change.column: successors(change.column, before, now) for change in found if change.way is Way.DROPPED}
    return tuple(
        replace(change, perhaps=guesses[change.column][0]) if len(guesses.get(change.column, ())) == 1 else change
        for change in found
    )


def successors(name: str, before: Columns, now: Columns) -> list[str]:
    """The new columns that one which is gone may have become: of its type, and between its neighbours."""
    names, order, new = _names(before), _names(now), _by_name(now)
    place = names.index(name)
    left = next((each for each in reversed(names[:place]) if each in new), None)
    right = next((each for each in names[place:] if each in new), None)
    start = order.index(left) + 1 if left is not None else 0
    end = order.index(right) if right is not None else len(order)
    type_ = described(before[place])
    between = order[start:end] if start <= end else order
    return [each for each in between if each not in names and described(new[each]) == type_]


# ---------------------------------------------------------------- contents


def columns_of(content: Mapping[str, Any]) -> list[Column]:
    """What arrives at the sink; () of a content that does not say."""
    return list(content.get("columns") or ())


def reads(content: Mapping[str, Any]) -> list[Column]:
    """What the source gives."""
    return list(_drift(content).get("reads", columns_of(content)))


def quarantined(content: Mapping[str, Any]) -> tuple[str, ...]:
    """The source's columns whose values may be put aside."""
    return tuple(_drift(content).get("quarantined", ()))


def absent(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of the sink that the stream no longer has: no row brings a value for them."""
    given = {*_names(reads(content)), *([ASIDE] if quarantined(content) else [])}
    return tuple(name for name in _names(columns_of(content)) if name not in given)


def own(content: Document) -> Document:
    """The content as the source itself gave it."""
    if "drift" not in content:
        return content
    given = {key: value for key, value in content.items() if key != "drift"}
    return given | {"columns": [dict(column) for column in reads(content)]}


def type_of(column: Column) -> Type:
    """A column's type; ValueError if it has none."""
    return parse_type(str(column.get("type")))


def described(column: Column) -> str:
    """A column's type, in the source's own words where it has any."""
    return str(column.get("origin") or column["type"])


# ---------------------------------------------------------------- what the sink's columns become


def followed(
    before: Mapping[str, Any] | None,
    now: Document,
    policy: str,
    *,
    whole: bool = False,
    dropped: Collection[str] = (),
) -> Document:
    """The content of the next slice; StreamRefused where the policy, or a value that would be lost, stands against it.

    `before`: the content of the last slice; `now`: what the source would give. The same `now` after the answer gives
    the answer again. `whole`: the slice takes the place of all before it, so that no two types have to share a column.
    `dropped`: columns that were not renamed, as the user says, although it looks like it.
    """
    if before is None or not columns_of(before) or (whole and policy == EVOLVE):
        return now
    if policy == FREEZE:
        found = changes(reads(before), columns_of(now))
        if found:
            raise _frozen(found)
        return _content(now, _landed(columns_of(before), columns_of(now), evolve=False), quarantined(before))
    if policy == QUARANTINE:
        return _quarantined(before, now)
    retyped = [change for change in changes(columns_of(before), columns_of(now)) if change.way is Way.RETYPED]
    if retyped:
        raise _lossy(retyped)
    _must_be_dropped(reads(before), columns_of(now), dropped)
    landed = _landed(columns_of(before), columns_of(now), evolve=True)
    landed += [column for column in columns_of(now) if column["name"] not in _names(landed)]
    return _content(now, landed, ())


def kept(before: Mapping[str, Any] | None, now: Document) -> Document:
    """The content of a slice that moves no rows: columns stay as they were."""
    if before is None or not columns_of(before):
        return now
    told = {key: value for key, value in before.items() if key in ("columns", "drift")}
    return {key: value for key, value in now.items() if key != "drift"} | told


def said(before: Mapping[str, Any] | None, content: Mapping[str, Any]) -> tuple[Change, ...]:
    """What a slice's content changes, for people: at the source, and in the sink where the policy alone did it."""
    if before is None or not columns_of(before):
        return ()
    at_source = changes(reads(before), reads(content))
    known = {ASIDE, *(change.column for change in at_source)}
    in_sink = changes(columns_of(before), columns_of(content))
    return (*at_source, *(change for change in in_sink if change.column not in known))


def _landed(before: Columns, now: Columns, *, evolve: bool) -> list[Column]:
    """The sink's columns as the stream finds them, in their order; wider ones only where they may evolve."""
    new = _by_name(now)
    landed = []
    for column in before:
        given = new.get(column["name"])
        same = given is not None and type_of(given) == type_of(column)
        wider = given is not None and widens(type_of(column), type_of(given))
        landed.append(given if given is not None and (same or (wider and evolve)) else column)
    return landed


def _quarantined(before: Mapping[str, Any], now: Document) -> Document:
    """The sink's columns stay, and what does not fit them is put aside."""
    stay, given = columns_of(before), columns_of(now)
    unfit = (Way.ADDED, Way.RETYPED, Way.WIDENED)
    aside = [change.column for change in changes(stay, given) if change.way in unfit]
    landed = _landed(stay, given, evolve=False)
    if aside and ASIDE in _names(given):
        raise StreamRefused(
            f"the stream has a column {ASIDE} of its own, and what does not fit the sink's columns would go there",
            next_step=f"rename it with `shape: {{rename: {{{ASIDE}: …}}}}`, or set `drift: evolve` on the stream",
            safe=UNTOUCHED,
        )
    if aside and ASIDE not in _names(stay):
        landed.append(_ASIDE_COLUMN)
    return _content(now, landed, aside)


_ASIDE_COLUMN: Column = {"name": ASIDE, "type": str(Plain.STRING)}


def _content(now: Document, landed: Columns, aside: Sequence[str]) -> Document:
    given = [dict(column) for column in columns_of(now)]
    stay = [dict(column) for column in landed]
    content = {key: value for key, value in now.items() if key != "drift"} | {"columns": stay}
    if stay == given:
        return content
    return content | {"drift": {"reads": given, "quarantined": list(aside)}}


def _must_be_dropped(before: Columns, now: Columns, dropped: Collection[str]) -> None:
    """A column that was perhaps renamed: its values would go on under another name, and the old ones would stay."""
    gone = [change.column for change in changes(before, now) if change.way is Way.DROPPED]
    found = {name: successors(name, before, now) for name in gone if name not in dropped}
    doubtful = {name: names for name, names in found.items() if names}
    if not doubtful:
        return
    pairs = "; ".join(
        f"column {name} is gone, and {' and '.join(names)} of its type" for name, names in doubtful.items()
    )
    lines = ", ".join(f"{new}: {name}" for new, name in {names[0]: name for name, names in doubtful.items()}.items())
    raise StreamRefused(
        f"perhaps a column was renamed: {pairs} {'is' if sum(map(len, doubtful.values())) == 1 else 'are'} new",
        next_step=f"if it was renamed, add to the stream `shape: {{rename: {{{lines}}}}}`, which goes on under the old "
        f"name; if it was dropped, add `dropped: [{', '.join(doubtful)}]`",
        safe=UNTOUCHED,
    )


def _frozen(found: Sequence[Change]) -> StreamRefused:
    return StreamRefused(
        f"its columns are frozen, and have changed: {'; '.join(map(str, found))}",
        next_step="change the source back; or accept it by `drift: evolve` (or `quarantine`) on the stream, and freeze "
        "it again once a slice has gone through",
        safe=UNTOUCHED,
    )


def _lossy(retyped: Sequence[Change]) -> StreamRefused:
    names = ", ".join(change.column for change in retyped)
    return StreamRefused(
        f"{'; '.join(map(str, retyped))}: the sink's column cannot hold both without losing a value",
        next_step=f"cast {names} back with `shape: {{cast: …}}`, give it another name with `shape: {{rename: …}}`, "
        "change it back at the source, or set `drift: quarantine` on the stream, which puts such values aside",
        safe=UNTOUCHED,
    )


def _drift(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content.get("drift") or {}
    return found


def _by_name(columns: Columns) -> dict[str, Column]:
    return {str(column["name"]): column for column in columns}


def _names(columns: Columns) -> list[str]:
    return [str(column["name"]) for column in columns]
