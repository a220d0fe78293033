"""A slice that is open while its table has changed: what the table has is read, and fitted to the slice's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.drift import ChangeKind, kind_of_change, successors, types_by_name
from penstock.core.types import Type
from penstock.errors import StreamRefused
from penstock.lake.types import spelt
from penstock.ports import Reading
from penstock.shaping.fitting import FittedReader
from penstock.sources.lake.content import TableContent, columns_of


@dataclass(frozen=True, slots=True)
class AsNow:
    """A slice's columns in terms of what the table has now."""

    #: those that the table still has
    names: tuple[str, ...]
    #: the slice's own, with their types
    columns: tuple[tuple[str, Type], ...]
    #: what is not as it was, in words
    changed: tuple[str, ...]

    def fitted(self, reading: Reading) -> Reading:
        """What is read, as the slice says it."""
        return replace(reading, reader=FittedReader(reading.reader, self.columns), changed=self.changed)


def as_now(content: TableContent, fields: Sequence[Mapping[str, Any]], stream: str) -> AsNow | None:
    """A slice against the table's fields; None: nothing has changed. StreamRefused where a value would be lost."""
    there = {each["name"]: each for each in fields}
    now = {each["name"]: spelt(each["type"]) for each in fields}
    names: list[str] = []
    changed: list[str] = []
    for was in content.columns:
        name = was.name
        if name not in there:
            perhaps = successors(name, types_by_name(content.columns), now)
            if perhaps or name in content.key:
                renamed = f"; perhaps it was renamed to {perhaps[0]!r}" if perhaps else ""
                what = f"the slice at hand reads the column {name!r}, which the table no longer has{renamed}"
                raise _refused(what, stream)
            changed.append(f"column {name} ({was.described}) is gone: it is NULL in this slice")
            continue
        names.append(name)
        (is_,) = columns_of([there[name]])
        if is_.type == was.type:
            continue
        before, after = was.described, is_.described
        if kind_of_change(was.type, is_.type) is ChangeKind.RETYPED:
            raise _refused(f"the slice at hand reads the column {name!r} as {before}, and it is {after} now", stream)
        changed.append(f"column {name} was {before} and is {after} now: it is {before} in this slice")
    if not changed:
        return None
    if not names:
        raise _refused("the slice at hand reads columns of which the table no longer has any", stream)
    return AsNow(tuple(names), tuple((each.name, each.type) for each in content.columns), tuple(changed))


def _refused(what: str, stream: str) -> StreamRefused:
    return StreamRefused(
        what,
        next_step="change the table back; or let go of the slice by "
        f"`penstock state recover FILE --stream {stream}`: the next one is planned anew",
        stream=stream,
    )
