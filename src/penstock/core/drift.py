"""What has changed between the columns of two slices, and which columns the sink has afterwards. Pure.

A content lists in `columns` what arrives at the sink, and in `reads` what the source gives. The sink's columns only
grow: one that the stream no longer has stays and gets no more values, one that became narrower stays wide.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.content import Column, Content, Drift
from penstock.core.types import Plain, Type
from penstock.core.widening import widens
from penstock.errors import UNTOUCHED, StreamRefused

#: the policies that a stream can have: follow, stop, quarantine
EVOLVE, FREEZE, QUARANTINE = POLICIES = ("evolve", "freeze", "quarantine")
#: the sink's column that holds quarantined values, as a JSON object of strings
QUARANTINE_COLUMN = "_quarantined"

Columns = Sequence[Column]


class ChangeKind(enum.StrEnum):
    """How a column has changed."""

    ADDED = "added"
    DROPPED = "dropped"
    WIDENED = "widened"  # every old value is exactly one of the new type
    NARROWED = "narrowed"  # the reverse
    RETYPED = "retyped"  # neither


@dataclass(frozen=True, slots=True)
class Change:
    """One column that is not as it was."""

    kind: ChangeKind
    column: str
    #: its types, in the source's own words where it has any
    was: str | None = None
    now: str | None = None
    #: of a dropped column: the new one that it perhaps is now
    perhaps: str | None = None

    @property
    def level(self) -> str:
        """How loudly it is to be said."""
        return "info" if self.kind in (ChangeKind.ADDED, ChangeKind.WIDENED) else "warning"

    def __str__(self) -> str:
        if self.kind is ChangeKind.ADDED:
            return f"column {self.column} is new ({self.now})"
        if self.kind is ChangeKind.DROPPED:
            renamed = f"; perhaps it was renamed to {self.perhaps}" if self.perhaps else ""
            return f"column {self.column} ({self.was}) is gone{renamed}"
        how = {ChangeKind.WIDENED: ", which is wider", ChangeKind.NARROWED: ", which is narrower"}.get(self.kind, "")
        return f"column {self.column} was {self.was} and is {self.now} now{how}"


def changes(before: Columns, now: Columns) -> tuple[Change, ...]:
    """Each column that is not as it was, in the order of the old ones, then of the new ones."""
    old, new = _by_name(before), _by_name(now)
    found = [change for name in old if (change := _change(name, old[name], new.get(name)))]
    found += [Change(ChangeKind.ADDED, name, now=new[name].described) for name in new if name not in old]
    return _renamed(found, before, now)


def _change(name: str, old: Column, new: Column | None) -> Change | None:
    if new is None:
        return Change(ChangeKind.DROPPED, name, was=old.described)
    if old.type == new.type:
        return None
    was, now = old.described, new.described
    if was == now:
        was, now = f"{was} as {old.type}", f"{now} as {new.type}"
    return Change(kind_of_change(old.type, new.type), name, was, now)


def kind_of_change(was: Type, now: Type) -> ChangeKind:
    """How one type follows another."""
    if widens(was, now):
        return ChangeKind.WIDENED
    return ChangeKind.NARROWED if widens(now, was) else ChangeKind.RETYPED


def _renamed(found: Sequence[Change], before: Columns, now: Columns) -> tuple[Change, ...]:
    """One gone and one new in its place: most likely it has another name. A guess, so it is only said."""
    old, new = types_by_name(before), types_by_name(now)
    guesses = {
        change.column: successors(change.column, old, new) for change in found if change.kind is ChangeKind.DROPPED
    }
    return tuple(
        replace(change, perhaps=guesses[change.column][0]) if len(guesses.get(change.column, ())) == 1 else change
        for change in found
    )


def successors(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The new columns that one which is gone may have become: of its type, and between its neighbours.

    `before`, `now`: the columns in their order, each with its type for people.
    """
    names, order = list(before), list(now)
    place = names.index(name)
    left = next((each for each in reversed(names[:place]) if each in now), None)
    right = next((each for each in names[place:] if each in now), None)
    start = order.index(left) + 1 if left is not None else 0
    end = order.index(right) if right is not None else len(order)
    between = order[start:end] if start <= end else order
    return [each for each in between if each not in before and now[each] == before[name]]


def types_by_name(columns: Columns) -> dict[str, str]:
    """Columns in their order, each with its type for people."""
    return {column.name: column.described for column in columns}


def absent(content: Content) -> tuple[str, ...]:
    """Columns of the sink that the stream no longer has: no row brings a value for them."""
    given = {*_names(content.reads), *([QUARANTINE_COLUMN] if content.quarantined else [])}
    return tuple(name for name in content.names if name not in given)


# ---------------------------------------------------------------- what the sink's columns become


def follow_drift(
    before: Content | None,
    now: Content,
    policy: str,
    *,
    whole: bool = False,
    dropped: Collection[str] = (),
) -> Content:
    """The content of the next slice; StreamRefused where the policy, or a value that would be lost, stands against it.

    `before`: the content of the last slice; `now`: what the source would give. The same `now` after the answer gives
    the answer again. `whole`: the slice takes the place of all before it, so that no two types have to share a column.
    `dropped`: columns that were not renamed, as the user says, although it looks like it.
    """
    if before is None or not before.columns or (whole and policy == EVOLVE):
        return now
    if policy == FREEZE:
        found = changes(before.reads, now.columns)
        if found:
            raise _frozen(found)
        return _content(now, _landed(before.columns, now.columns, evolve=False), before.quarantined)
    if policy == QUARANTINE:
        return _quarantined(before, now)
    retyped = [change for change in changes(before.columns, now.columns) if change.kind is ChangeKind.RETYPED]
    if retyped:
        raise _lossy(retyped)
    _must_be_dropped(before.reads, now.columns, dropped)
    landed = _landed(before.columns, now.columns, evolve=True)
    landed += [column for column in now.columns if column.name not in _names(landed)]
    return _content(now, landed, ())


def keep_columns(before: Content | None, now: Content) -> Content:
    """The content of a slice that moves no rows: columns stay as they were."""
    if before is None or not before.columns:
        return now
    return replace(now, columns=before.columns, drift=before.drift)


def list_changes(before: Content | None, content: Content) -> tuple[Change, ...]:
    """What a slice's content changes, for people: at the source, and in the sink where the policy alone did it."""
    if before is None or not before.columns:
        return ()
    at_source = changes(before.reads, content.reads)
    known = {QUARANTINE_COLUMN, *(change.column for change in at_source)}
    in_sink = changes(before.columns, content.columns)
    return (*at_source, *(change for change in in_sink if change.column not in known))


def _landed(before: Columns, now: Columns, *, evolve: bool) -> list[Column]:
    """The sink's columns as the stream finds them, in their order; wider ones only where they may evolve."""
    new = _by_name(now)
    landed = []
    for column in before:
        given = new.get(column.name)
        same = given is not None and given.type == column.type
        wider = given is not None and widens(column.type, given.type)
        landed.append(given if given is not None and (same or (wider and evolve)) else column)
    return landed


def _quarantined(before: Content, now: Content) -> Content:
    """Keep the sink's columns, and quarantine values that do not fit them."""
    stay, given = before.columns, now.columns
    kinds = (ChangeKind.ADDED, ChangeKind.RETYPED, ChangeKind.WIDENED)
    unfit = [change.column for change in changes(stay, given) if change.kind in kinds]
    landed = _landed(stay, given, evolve=False)
    if unfit and QUARANTINE_COLUMN in _names(given):
        raise StreamRefused(
            f"the stream has a column {QUARANTINE_COLUMN}, which the sink needs for values that do not fit its columns",
            next_step=f"rename it with `shape: {{rename: {{{QUARANTINE_COLUMN}: …}}}}`, or set `drift: evolve` on the "
            "stream",
            safe=UNTOUCHED,
        )
    if unfit and QUARANTINE_COLUMN not in _names(stay):
        landed.append(_QUARANTINE_STRINGS)
    return _content(now, landed, unfit)


_QUARANTINE_STRINGS = Column(QUARANTINE_COLUMN, Plain.STRING)


def _content(now: Content, landed: Columns, unfit: Sequence[str]) -> Content:
    if tuple(landed) == now.columns:
        return replace(now, drift=None)
    return replace(now, columns=tuple(landed), drift=Drift(now.columns, tuple(unfit)))


def _must_be_dropped(before: Columns, now: Columns, dropped: Collection[str]) -> None:
    """A column that was perhaps renamed: its values would go on under another name, and the old ones would stay."""
    gone = [change.column for change in changes(before, now) if change.kind is ChangeKind.DROPPED]
    old, new = types_by_name(before), types_by_name(now)
    found = {name: successors(name, old, new) for name in gone if name not in dropped}
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
        "change it back at the source, or set `drift: quarantine` on the stream, which stores such values separately",
        safe=UNTOUCHED,
    )


def _by_name(columns: Columns) -> dict[str, Column]:
    return {column.name: column for column in columns}


def _names(columns: Columns) -> list[str]:
    return [column.name for column in columns]
