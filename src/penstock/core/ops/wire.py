"""The documents that carry ops, and why one is refused.

A receiver of ops (the service's `POST /v1/streams/{name}/ops`) calls `refusal` for each decoded row. The stream is not
part of a document: it is where the document is sent to.

    {"v": 1, "table": "public.images", "key": 17, "creates": true, "ops": [
        {"op": "set", "field": "url", "value": "a.png", "old": null},   old: optional
        {"op": "remove", "field": "title"},                             a scalar field becomes null
        {"op": "add", "field": "tags", "value": 7},                     one value of a multi-value field
        {"op": "remove", "field": "tags", "value": 8}]}
    {"v": 1, "table": "public.images", "key": 17, "ops": [{"op": "delete"}]}
    {"v": 1, "table": "public.images", "ops": [{"op": "clear"}]}        every entity; with `field`: that field of all
    {"v": 1, "table": "public.posts", "ops": [{"op": "query_op_set",
        "where": {"field": "post_id", "eq": 5},                         or "in": [5, 6]; or {"and": [...]}
        "ops": [{"op": "set", "field": "post_title", "value": "x"}]}]}

`key` is an integer or a string, or an array of them for a composite key. Keys, values of multi-value fields and values
of filters are never floats: two producers may spell one number differently. A change of this format that an older
reader would misunderstand gets another `v`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from penstock.core.names import suggest

#: the version of the format
VERSION = 1

MAX_INTEGER = 2**63 - 1

_HEADER_MEMBERS = frozenset({"v", "table", "key", "creates", "ops"})

#: per op: members it must have, and members it may have
_OP_MEMBERS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "set": (frozenset({"field", "value"}), frozenset({"old"})),
    "remove": (frozenset({"field"}), frozenset({"value", "old"})),
    "add": (frozenset({"field", "value"}), frozenset()),
    "delete": (frozenset(), frozenset()),
    "clear": (frozenset(), frozenset({"field"})),
    "query_op_set": (frozenset({"where", "ops"}), frozenset()),
}
#: ops on one entity, and ops on all entities of a stream
_ENTITY_OPS = frozenset({"set", "remove", "add", "delete"})
_STREAM_OPS = frozenset({"clear", "query_op_set"})
#: what a filter may apply to the entities that match it
_FILTERED_OPS = frozenset({"set", "remove", "add"})

#: filters are this deep at most
_MAX_DEPTH = 8


def refusal(document: object) -> str | None:
    """Why a decoded document is not valid; None: it is. The first reason only."""
    reason = header_refusal(document)
    if reason is not None:
        return reason
    assert isinstance(document, Mapping)
    keyed = "key" in document
    for index, op in enumerate(document["ops"]):
        reason = op_refusal(op, keyed=keyed)
        if reason is not None:
            return f"ops[{index}]: {reason}"
    return None


def header_refusal(document: object) -> str | None:
    """Why a document cannot be read at all; None: its ops can be judged one by one."""
    if not isinstance(document, Mapping):
        return f"a document is a JSON object, not {_kind(document)}"
    version = document.get("v")
    if type(version) is not int or version != VERSION:
        return (
            f"`v` is {_show(version)}; this penstock reads version {VERSION}" if "v" in document else "`v` is missing"
        )
    if not document.keys() <= _HEADER_MEMBERS:
        return _unknown_member(document, _HEADER_MEMBERS)
    table = document.get("table")
    if type(table) is not str or not table:
        return "`table` must be the name of the table that changed"
    ops = document.get("ops")
    if type(ops) is not list:
        return "`ops` must be an array"
    creates = document.get("creates", False)
    if type(creates) is not bool:
        return "`creates` must be true or false"
    if "key" in document:
        reason = _key_refusal(document["key"])
        if reason is not None:
            return reason
        if len(ops) > 1 and any(isinstance(op, Mapping) and op.get("op") == "delete" for op in ops):
            return "`delete` must be the only op of its document"
        if creates and ops and isinstance(ops[0], Mapping) and ops[0].get("op") == "delete":
            return "a document with `delete` cannot have `creates`"
    elif creates:
        return "a document with `creates` must have a `key`"
    if not ops and not creates:
        return "`ops` is empty"
    return None


def op_refusal(op: object, *, keyed: bool) -> str | None:
    """Why an op is not valid; None: it is. `keyed`: its document has a key."""
    reason = _shape_refusal(op, _ENTITY_OPS | _STREAM_OPS)
    if reason is not None:
        return reason
    assert isinstance(op, Mapping)
    name = op["op"]
    if name in _STREAM_OPS:
        if keyed:
            return f"`{name}` concerns many entities: its document must not have a `key`"
        return _filter_op_refusal(op) if name == "query_op_set" else None
    if not keyed:
        return f"`{name}` needs the `key` of its entity"
    return None


def key_text(key: Any) -> str:
    """The one spelling of a valid key."""
    return json.dumps(key, separators=(",", ":"))


def value_text(value: Any) -> str:
    """The one spelling of a value, so that 1, "1" and true are three values."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _shape_refusal(op: object, allowed: Collection[str]) -> str | None:
    """Check an op's name, members and values, without its filter."""
    if not isinstance(op, Mapping):
        return f"an op is a JSON object, not {_kind(op)}"
    name = op.get("op")
    if type(name) is not str:
        return "`op` is missing" if "op" not in op else f"`op` must be a name, not {_kind(name)}"
    if name not in _OP_MEMBERS:
        return f"unknown op '{name}'; {suggest(name, _OP_MEMBERS, 'ops')}"
    if name not in allowed:
        return f"`{name}` cannot stand inside `query_op_set`; allowed: {', '.join(sorted(allowed))}"
    required, optional = _OP_MEMBERS[name]
    members = op.keys() - {"op"}
    if not required <= members:
        return f"`{name}` needs `{min(required - members)}`"
    if not members <= required | optional:
        return _unknown_member(op, {"op"} | required | optional)
    if "field" in op and (type(op["field"]) is not str or not op["field"]):
        return "`field` must be the name of a field"
    if name == "add" or (name == "remove" and "value" in op):
        return _scalar_refusal(op["value"], f"`value` of `{name}`")
    if name == "set" and not _is_json(op["value"]):
        return "`value` must be a JSON value; NaN and Infinity are not"
    return None


def _filter_op_refusal(op: Mapping[str, Any]) -> str | None:
    reason = _where_refusal(op["where"], _MAX_DEPTH)
    if reason is not None:
        return f"`where`: {reason}"
    if type(op["ops"]) is not list or not op["ops"]:
        return "`ops` of `query_op_set` must be an array with at least one op"
    for index, inner in enumerate(op["ops"]):
        reason = _shape_refusal(inner, _FILTERED_OPS)
        if reason is not None:
            return f"ops[{index}]: {reason}"
    return None


def _where_refusal(where: object, depth: int) -> str | None:
    if not isinstance(where, Mapping):
        return f"a filter is a JSON object, not {_kind(where)}"
    if not depth:
        return f"filters are nested more than {_MAX_DEPTH} deep"
    members = where.keys()
    if members == {"and"}:
        parts = where["and"]
        if type(parts) is not list or not parts:
            return "`and` must be an array with at least one filter"
        return next((reason for part in parts if (reason := _where_refusal(part, depth - 1))), None)
    if members not in ({"field", "eq"}, {"field", "in"}):
        return "a filter has `field` and `eq`, `field` and `in`, or `and` alone"
    if type(where["field"]) is not str or not where["field"]:
        return "`field` must be the name of a field"
    if "eq" in where:
        return _scalar_refusal(where["eq"], "`eq`")
    if type(where["in"]) is not list or not where["in"]:
        return "`in` must be an array with at least one value"
    return next((reason for value in where["in"] if (reason := _scalar_refusal(value, "a value of `in`"))), None)


def _key_refusal(key: object) -> str | None:
    kind = type(key)
    if kind is str:
        return None
    if kind is int:
        return _integer_refusal(key, "`key`")
    if not isinstance(key, list):
        return f"`key` must be an integer, a string, or an array of them, not {_kind(key)}"
    if len(key) < 2:
        return "a `key` of one column is written without the array"
    for part in key:
        if type(part) is int:
            reason = _integer_refusal(part, "`key`")
            if reason is not None:
                return reason
        elif type(part) is not str:
            return f"each part of `key` must be an integer or a string, not {_kind(part)}"
    return None


def _scalar_refusal(value: object, what: str) -> str | None:
    kind = type(value)
    if kind is str or kind is bool:
        return None
    if kind is int:
        return _integer_refusal(value, what)
    return f"{what} must be a string, an integer, true or false, not {_kind(value)}"


def _integer_refusal(value: Any, what: str) -> str | None:
    if -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        return None
    return f"{what} has more than 64 bits; write it as a string"


def _is_json(value: object) -> bool:
    if value is None or isinstance(value, str | bool | int):
        return True
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list):
        return all(map(_is_json, value))
    return isinstance(value, dict) and all(type(name) is str and _is_json(each) for name, each in value.items())


def _unknown_member(document: Mapping[str, Any], known: Collection[str]) -> str:
    wrong = min(str(name) for name in document.keys() - known)
    return f"unknown member '{wrong}'; {suggest(wrong, known, 'members')}"


def _kind(value: object) -> str:
    """The JSON type of a value, for a message."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a number with a fraction", str: "a string"}
    return names.get(type(value)) or ("an array" if isinstance(value, list) else "an object")


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
