"""The state of a stream of ops: its entities, ops that came before their entity, and the last values of fan-outs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from penstock.core.names import suggest

#: a fan-out table and the values of its match fields, each as text
Match = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FanOut:
    """A table each row of which sets fields of all entities that match it, as a post sets its images' title.

    Its last values are kept, so that entities that come or move later take them. A fan-out table decides its fields:
    an entity's own value of one counts only until the table has one for the entity's match.
    """

    #: as in `table` of its documents
    table: str
    #: scalar fields of the entity that a filter compares, all of them in each filter
    match: tuple[str, ...]
    #: scalar fields that it sets; no other fan-out sets them
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a stream's entities; ValueError if the declaration contradicts itself."""

    scalars: frozenset[str] = frozenset()
    #: fields that hold a set of values
    multi: frozenset[str] = frozenset()
    #: a fan-out that sets a match field of another one comes first
    fan_outs: tuple[FanOut, ...] = ()

    def __post_init__(self) -> None:
        if both := self.scalars & self.multi:
            raise ValueError(f"field '{min(both)}' is declared both as scalar and as multi-value")
        owners: dict[str, str] = {}
        for fan_out in self.fan_outs:
            if not fan_out.match or not fan_out.fields:
                raise ValueError(f"fan-out {fan_out.table} needs at least one match field and one field that it sets")
            for name in (*fan_out.match, *fan_out.fields):
                if name not in self.scalars:
                    raise ValueError(
                        f"fan-out {fan_out.table} names '{name}', which is no scalar field; "
                        f"{suggest(name, self.scalars, 'scalar fields')}"
                    )
            for name in fan_out.fields:
                if owners.setdefault(name, fan_out.table) != fan_out.table or fan_out.fields.count(name) > 1:
                    raise ValueError(f"field '{name}' is set by two fan-outs, {owners[name]} and {fan_out.table}")
        if len({fan_out.table for fan_out in self.fan_outs}) < len(self.fan_outs):
            raise ValueError("a table is declared as a fan-out twice")
        object.__setattr__(self, "fan_outs", _in_order(self.fan_outs, owners))

    def fan_out_of(self, table: str) -> FanOut | None:
        return next((each for each in self.fan_outs if each.table == table), None)


@dataclass(frozen=True, slots=True)
class Record:
    """An entity's fields, or what is known of an entity that does not exist yet."""

    #: scalar fields that are not null
    scalars: Mapping[str, Any] = field(default_factory=dict)
    #: multi-value fields that are not empty; values as text (`value_text`)
    multi: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the ops so far have led to, by keys as text (`key_text`)."""

    entities: Mapping[str, Record] = field(default_factory=dict)
    #: ops of entities that no creating document has brought yet; they apply when it comes
    early: Mapping[str, Record] = field(default_factory=dict)
    #: when the first of an entity's early ops came
    early_since: Mapping[str, int] = field(default_factory=dict)
    #: last values of the declared fan-outs; null is a value too
    fan_outs: Mapping[Match, Mapping[str, Any]] = field(default_factory=dict)


def _in_order(fan_outs: tuple[FanOut, ...], owners: Mapping[str, str]) -> tuple[FanOut, ...]:
    by_table = {each.table: each for each in fan_outs}
    before = {each.table: {owners[name] for name in each.match if name in owners} for each in fan_outs}
    try:
        return tuple(by_table[table] for table in TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ValueError(f"fan-outs set what they match on: {' -> '.join(error.args[1])}") from None
