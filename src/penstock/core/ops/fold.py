"""The reference fold: what a sequence of documents means. Clarity before speed; Spark's fold is tested against it.

- A document with `creates` brings its entity into being. Other ops on an entity that does not exist are early: they
  wait, and apply before the document that creates it. A `delete` drops them too.
- `delete` absorbs everything before it. `clear` does so for every entity, or for one field of every entity; that of a
  fan-out's own table also drops its last values.
- A `query_op_set` of a table that is not declared as a fan-out changes the entities that match now, and only them.
- A declared fan-out decides its fields: entities and fan-outs may come in any order. An entity whose match field is
  written takes the values of its new match; where there is none, its own value from the same document, or null.
- An op or document that is not understood is quarantined with its reason; the rest is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from penstock.core.names import suggest
from penstock.core.ops.state import FanOut, Match, Record, Shape, State
from penstock.core.ops.wire import header_refusal, key_text, op_refusal, value_text

Op = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A document at its place in the order."""

    id: int
    #: as decoded; may be anything
    document: Any
    #: when it was written; in any unit, the same for all rows
    at: int = 0


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An op or a document that was not applied."""

    row: int
    #: None: the whole document
    op: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold."""

    state: State
    quarantined: tuple[Quarantined, ...] = ()
    #: ops that came before their entity
    early: int = 0


@dataclass(slots=True)
class _Draft:
    """A record under change."""

    exists: bool = False
    scalars: dict[str, Any] = field(default_factory=dict)
    multi: dict[str, set[str]] = field(default_factory=dict)
    since: int = 0


@dataclass(slots=True)
class _Work:
    shape: Shape
    drafts: dict[str, _Draft]
    fan_outs: dict[Match, dict[str, Any]]
    quarantined: list[Quarantined] = field(default_factory=list)
    early: int = 0


def fold(state: State, shape: Shape, rows: Iterable[Row]) -> Folded:
    """The state after rows, in the order given."""
    work = _begin(state, shape)
    for row in rows:
        reason = header_refusal(row.document)
        if reason is not None:
            work.quarantined.append(Quarantined(row.id, None, reason))
        elif "key" in row.document:
            _apply_to_entity(work, row)
        else:
            _apply_to_stream(work, row)
    return Folded(_end(work), tuple(work.quarantined), work.early)


def forget_early(state: State, before: int) -> tuple[State, int]:
    """Drop early ops of entities whose first one came before a time; also the number of entities."""
    kept = {key: since for key, since in state.early_since.items() if since >= before}
    early = {key: state.early[key] for key in kept}
    return replace(state, early=early, early_since=kept), len(state.early) - len(kept)


# ------------------------------------------------------------ one entity


def _apply_to_entity(work: _Work, row: Row) -> None:
    document = row.document
    key = key_text(document["key"])
    ops = _readable_ops(work, row, keyed=True)
    if any(op["op"] == "delete" for op in ops):
        _absorb(work, key)
        return
    creates = document.get("creates", False)
    draft = work.drafts.get(key)
    if draft is None:
        if not creates and not ops:
            return
        draft = work.drafts[key] = _Draft(since=row.at)
    born = creates and not draft.exists
    draft.exists = draft.exists or creates
    if not draft.exists:
        work.early += len(ops)
    written = {_apply(draft, op) for op in ops}
    _settle(work, draft, written, born=born)
    if not draft.exists and not draft.scalars and not draft.multi:
        del work.drafts[key]


def _absorb(work: _Work, key: str) -> None:
    work.drafts.pop(key, None)


def _apply(draft: _Draft, op: Op) -> str:
    """Apply an op to one record, and return the field that it wrote."""
    name: str = op["field"]
    if op["op"] == "add":
        draft.multi.setdefault(name, set()).add(value_text(op["value"]))
    elif "value" in op and op["op"] == "remove":
        draft.multi.get(name, set()).discard(value_text(op["value"]))
        if not draft.multi.get(name):
            draft.multi.pop(name, None)
    elif op.get("value") is None:
        draft.scalars.pop(name, None)
    else:
        draft.scalars[name] = op["value"]
    return name


def _settle(work: _Work, draft: _Draft, written: set[str], *, born: bool = False) -> None:
    """Let the fan-outs decide their fields again, after some fields were written."""
    for fan_out in work.shape.fan_outs:
        moved = not written.isdisjoint(fan_out.match)
        if moved:
            for name in fan_out.fields:
                if name not in written:
                    draft.scalars.pop(name, None)
                    written = written | {name}
        if draft.exists and (born or moved or not written.isdisjoint(fan_out.fields)):
            values = _last_values(work, fan_out, draft)
            for name, value in values.items():
                _put(draft, name, value)
            written = written | values.keys()


def _last_values(work: _Work, fan_out: FanOut, draft: _Draft) -> Mapping[str, Any]:
    if any(name not in draft.scalars for name in fan_out.match):
        return {}
    match = tuple(value_text(draft.scalars[name]) for name in fan_out.match)
    return work.fan_outs.get((fan_out.table, match), {})


def _put(draft: _Draft, name: str, value: Any) -> None:
    if value is None:
        draft.scalars.pop(name, None)
    else:
        draft.scalars[name] = value


# ------------------------------------------------------------ all entities of a stream


def _apply_to_stream(work: _Work, row: Row) -> None:
    for op in _readable_ops(work, row, keyed=False):
        if op["op"] == "clear":
            _clear(work, row.document["table"], op.get("field"))
            continue
        fan_out = work.shape.fan_out_of(row.document["table"])
        ops = _known_ops(work, row, op["ops"])
        if fan_out is None:
            _apply_to_matching(work, op["where"], ops)
        elif (reason := _mismatch(fan_out, op["where"], ops)) is not None:
            work.quarantined.append(Quarantined(row.id, op, reason))
        else:
            for match in _matches_of(fan_out, op["where"]):
                _fan_out(work, fan_out, match, ops)


def _clear(work: _Work, table: str, name: str | None) -> None:
    if name is None:
        work.drafts.clear()
        return
    fan_out = work.shape.fan_out_of(table)
    if fan_out is not None and name in fan_out.fields:
        for values in work.fan_outs.values():
            values.pop(name, None)
    for draft in work.drafts.values():
        draft.scalars.pop(name, None)
        draft.multi.pop(name, None)
        _settle(work, draft, {name})
    for key in [key for key, each in work.drafts.items() if not (each.exists or each.scalars or each.multi)]:
        del work.drafts[key]


def _apply_to_matching(work: _Work, where: Mapping[str, Any], ops: list[Op]) -> None:
    for draft in work.drafts.values():
        if draft.exists and _is_match(draft, where):
            _settle(work, draft, {_apply(draft, op) for op in ops})


def _is_match(draft: _Draft, where: Mapping[str, Any]) -> bool:
    if "and" in where:
        return all(_is_match(draft, part) for part in where["and"])
    values = where["in"] if "in" in where else [where["eq"]]
    texts = {value_text(value) for value in values}
    name = where["field"]
    own = draft.multi.get(name, set())
    return not texts.isdisjoint(own) or (name in draft.scalars and value_text(draft.scalars[name]) in texts)


def _fan_out(work: _Work, fan_out: FanOut, match: tuple[str, ...], ops: list[Op]) -> None:
    """Keep the values of a match for entities that come later, and give them to those that have it."""
    values = {op["field"]: op.get("value") for op in ops}
    work.fan_outs.setdefault((fan_out.table, match), {}).update(values)
    for draft in work.drafts.values():
        if draft.exists and _match_of(fan_out, draft) == match:
            for name, value in values.items():
                _put(draft, name, value)
            _settle(work, draft, set(values))


def _match_of(fan_out: FanOut, draft: _Draft) -> tuple[str, ...]:
    return tuple(value_text(draft.scalars.get(name)) for name in fan_out.match)


# ------------------------------------------------------------ what is understood


def _readable_ops(work: _Work, row: Row, *, keyed: bool) -> list[Op]:
    """The valid ops of a document; the others are quarantined."""
    valid = []
    for op in row.document["ops"]:
        reason = op_refusal(op, keyed=keyed)
        if reason is not None:
            work.quarantined.append(Quarantined(row.id, op, reason))
        else:
            valid.append(op)
    return _known_ops(work, row, valid)


def _known_ops(work: _Work, row: Row, ops: Iterable[Op]) -> list[Op]:
    """The ops whose fields the shape declares, of the right kind; the others are quarantined."""
    known = []
    for op in ops:
        reason = _unknown(work.shape, op)
        if reason is not None:
            work.quarantined.append(Quarantined(row.id, op, reason))
        else:
            known.append(op)
    return known


def _unknown(shape: Shape, op: Op) -> str | None:
    """Why an op's fields do not fit; None: they do."""
    if op["op"] == "query_op_set":
        return _unknown_filter(shape, op["where"])
    name = op.get("field")
    if name is None:
        return None
    if name not in shape.scalars and name not in shape.multi:
        return f"unknown field '{name}'; {suggest(name, shape.scalars | shape.multi, 'fields')}"
    takes_value = op["op"] == "add" or (op["op"] == "remove" and "value" in op)
    if takes_value and name in shape.scalars:
        return f"field '{name}' holds a single value: use `set`, or `remove` without `value`"
    if not takes_value and op["op"] in ("set", "remove") and name in shape.multi:
        return f"field '{name}' holds several values: use `add`, or `remove` with `value`"
    return None


def _unknown_filter(shape: Shape, where: Mapping[str, Any]) -> str | None:
    if "and" in where:
        return next((reason for part in where["and"] if (reason := _unknown_filter(shape, part))), None)
    name = where["field"]
    if name in shape.scalars or name in shape.multi:
        return None
    return f"unknown field '{name}' in `where`; {suggest(name, shape.scalars | shape.multi, 'fields')}"


def _mismatch(fan_out: FanOut, where: Mapping[str, Any], ops: Iterable[Op]) -> str | None:
    """Why a `query_op_set` is not what its table is declared for; None: it is."""
    compared = [name for name, _ in _comparisons(where)]
    if sorted(compared) != sorted(fan_out.match):
        return (
            f"fan-out {fan_out.table} is declared to match on {', '.join(fan_out.match)}, "
            f"and this filter compares {', '.join(compared)}"
        )
    for inner in ops:
        if inner["field"] not in fan_out.fields:
            return (
                f"fan-out {fan_out.table} is declared to set {', '.join(fan_out.fields)}, "
                f"and this one has `{inner['op']}` of '{inner['field']}'"
            )
    return None


def _comparisons(where: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The fields that a filter compares, each with the values it accepts, as text."""
    if "and" in where:
        return [each for part in where["and"] for each in _comparisons(part)]
    values = where["in"] if "in" in where else [where["eq"]]
    return [(where["field"], [value_text(value) for value in values])]


def _matches_of(fan_out: FanOut, where: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    accepted = dict(_comparisons(where))
    return product(*(accepted[name] for name in fan_out.match))


# ------------------------------------------------------------ between states and drafts


def _begin(state: State, shape: Shape) -> _Work:
    drafts = {key: _draft(record, exists=True) for key, record in state.entities.items()}
    for key, record in state.early.items():
        drafts[key] = _draft(record, exists=False, since=state.early_since[key])
    return _Work(shape, drafts, {match: dict(values) for match, values in state.fan_outs.items()})


def _draft(record: Record, *, exists: bool, since: int = 0) -> _Draft:
    multi = {name: set(values) for name, values in record.multi.items()}
    return _Draft(exists, dict(record.scalars), multi, since)


def _end(work: _Work) -> State:
    early = {key: draft for key, draft in work.drafts.items() if not draft.exists}
    return State(
        {key: _record(draft) for key, draft in work.drafts.items() if draft.exists},
        {key: _record(draft) for key, draft in early.items()},
        {key: draft.since for key, draft in early.items()},
        {match: values for match, values in work.fan_outs.items() if values},
    )


def _record(draft: _Draft) -> Record:
    multi = {name: frozenset(values) for name, values in draft.multi.items() if values}
    return Record(dict(draft.scalars), multi)
