"""The loads of a stream, one for each table that feeds it, and what has to be done for a declaration that changed.

A range is read by columns whose change writes the whole row into the outbox again: those of the key of an entity, of a
value, of a match. By any other column, a row could move from a range that is still to be read into one that was read,
and nobody would say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.documents import Document, canonical
from penstock.links.postgres.literals import TableName
from penstock.sources.outbox.feeds import DirectFeed, Entity, FanOutFeed, FedField, FedTable, Feed, KeyPart
from penstock.sources.outbox.load.dumps import Dump, Hold
from penstock.sources.outbox.load.states import COMPLETE, DROPPED, ENDED, LoadState

_DIGITS = 16

#: the fields of a table that are cleared, None: every entity
Clear = tuple[str, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Load:
    """What one table says to one stream, row by row."""

    #: unique in the stream, for people too
    name: str
    table: TableName
    fed: FedTable
    feed: Feed
    #: of what a row stands for, and of the time since when its changes are in the outbox; another one: what the table
    #: said before is cleared
    identity: str
    #: of the fields; another one: they are set again
    fields: str
    #: False: it was dropped
    wanted: bool = True
    #: read in place of the table
    dump: Dump | None = None
    #: of the stream, for its dump
    hold: Hold | None = None

    @property
    def creates(self) -> bool:
        return isinstance(self.feed, DirectFeed) and self.feed.creates

    @property
    def parts(self) -> tuple[KeyPart, ...]:
        """The columns that a range may be read by."""
        if isinstance(self.feed, FanOutFeed):
            return tuple(part for _, part in self.feed.match)
        return self.feed.key if isinstance(self.feed, DirectFeed) else (*self.feed.key, self.feed.value)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of the entity that it sets."""
        if isinstance(self.feed, FanOutFeed):
            return self.feed.names
        return (
            tuple(each.name for each in self.feed.fields) if isinstance(self.feed, DirectFeed) else (self.feed.field,)
        )

    @property
    def state(self) -> LoadState:
        """As it is before it begins."""
        return LoadState(self.name, self.identity, self.fields, self.names)


def loads_of(entity: Entity, tables: Mapping[TableName, FedTable], since: Mapping[str, str]) -> tuple[Load, ...]:
    """The loads of a stream in the order in which they are made: what creates entities comes first.

    `since` has, for each table, since when its changes have been in the outbox without a gap.
    """
    found: list[Load] = []
    for table, feed in entity.feeds:
        name = f"{table}.{feed.field}" if not isinstance(feed, DirectFeed | FanOutFeed) else str(table)
        same = sum(each.name.split(" #")[0] == name for each in found)
        identity, fields = _identity(feed), _fields(feed)
        found.append(
            Load(
                f"{name} #{same + 1}" if same else name,
                table,
                tables[table],
                feed,
                digest({**identity, "table": str(table), "oid": tables[table].oid, "since": since.get(str(table), "")}),
                digest(fields),
            )
        )
    return tuple(sorted(found, key=lambda each: not each.creates))


def compare(states: Sequence[LoadState], loads: Sequence[Load]) -> tuple[tuple[LoadState, ...], tuple[Clear, ...]]:
    """The state of each load by its present declaration, and what has to be cleared before it begins."""
    known = {each.name: each for each in states}
    creating = next((each for each in loads if each.creates), None)
    if creating is not None and not _is_same(known.get(creating.name), creating):
        # All entities go, and with them what every table has said of them. Not the values that fan-outs keep.
        clears: list[Clear] = [(str(creating.table), None)]
        clears += [(str(each.table), each.names) for each in loads if isinstance(each.feed, FanOutFeed)]
        return tuple(_unless_dropped(each, each.state) for each in loads), tuple(clears)
    clears, now = [], []
    for load in loads:
        state = known.get(load.name)
        same = state if state is not None and _is_same(state, load) else None
        # A field that is new here may have been set by another table, or by this one at an earlier time.
        if new := tuple(name for name in load.names if same is None or name not in same.names):
            clears.append((str(load.table), new))
        now.append(_unless_dropped(load, same if same is not None and same.fields == load.fields else load.state))
    return tuple(now), tuple(clears)


def _unless_dropped(load: Load, state: LoadState) -> LoadState:
    if load.wanted:
        return load.state if state.state == DROPPED else state
    return state if state.state == COMPLETE else replace(state, state=DROPPED, after=None)


def remaining_loads(states: Sequence[LoadState], loads: Sequence[Load]) -> tuple[tuple[Load, LoadState], ...]:
    """The loads that have not ended."""
    now, _ = compare(states, loads)
    return tuple((load, state) for load, state in zip(loads, now, strict=True) if state.state not in ENDED)


def _is_same(state: LoadState | None, load: Load) -> bool:
    return state is not None and state.identity == load.identity


def _identity(feed: Feed) -> dict[str, Document | str | list[Document] | None]:
    if isinstance(feed, FanOutFeed):
        match: list[Document] = [{"field": name, **_part(part)} for name, part in feed.match]
        return {"kind": "fan_out", "match": match}
    if isinstance(feed, DirectFeed):
        return {"kind": "direct", "creates": str(feed.creates), "key": [_part(each) for each in feed.key]}
    return {
        "kind": "multi_value",
        "key": [_part(each) for each in feed.key],
        "field": feed.field,
        "value": _part(feed.value),
        "where": feed.where,
    }


def _fields(feed: Feed) -> Document:
    if isinstance(feed, FanOutFeed):
        values = [_field(each) for each in feed.values]
        return {"fields": [_field(each) for each in feed.fields], "values": values, "subquery": feed.subquery}
    return {"fields": [_field(each) for each in feed.fields] if isinstance(feed, DirectFeed) else []}


def _part(part: KeyPart) -> Document:
    return {"column": part.column, "type": part.origin, "spelling": part.form.spelling.value}


def _field(field: FedField) -> Document:
    return {
        "name": field.name,
        "type": field.origin,
        "spelling": field.form.spelling.value,
        "expression": field.expression,
    }


def digest(document: Document) -> str:
    """The hash of a declaration."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:_DIGITS]
