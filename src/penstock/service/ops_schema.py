"""The JSON Schema of a document of ops, version 1, for the OpenAPI document. `core.ops.wire` has the last word."""

from __future__ import annotations

from typing import Any

from penstock.core.ops.wire import MAX_INTEGER, VERSION

_NAME = {"type": "string", "minLength": 1}
_INTEGER = {"type": "integer", "minimum": -MAX_INTEGER - 1, "maximum": MAX_INTEGER}
_KEY_PART = {"anyOf": [_INTEGER, {"type": "string"}]}
_SCALAR = {"anyOf": [_INTEGER, {"type": "string"}, {"type": "boolean"}]}
_KEY = {"anyOf": [_INTEGER, {"type": "string"}, {"type": "array", "minItems": 2, "items": _KEY_PART}]}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [*required],
        "properties": required | (optional or {}),
    }


def _op(name: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return _object({"op": {"const": name}, **required}, optional)


_FIELD_OPS = [
    _op("set", {"field": _NAME, "value": {}}, {"old": {}}),
    _op("remove", {"field": _NAME}, {"value": _SCALAR, "old": {}}),
    _op("add", {"field": _NAME, "value": _SCALAR}),
]
_CONDITION = {
    "anyOf": [
        _object({"field": _NAME, "eq": _SCALAR}),
        _object({"field": _NAME, "in": {"type": "array", "minItems": 1, "items": _SCALAR}}),
    ]
}
_WHERE = {"anyOf": [*_CONDITION["anyOf"], _object({"and": {"type": "array", "minItems": 1, "items": _CONDITION}})]}
_STREAM_OPS = [
    _op("clear", {}, {"field": _NAME}),
    _op("query_op_set", {"where": _WHERE, "ops": {"type": "array", "minItems": 1, "items": {"anyOf": _FIELD_OPS}}}),
]
_HEAD = {"v": {"type": "integer", "const": VERSION}, "table": _NAME}


def _ops(kinds: list[dict[str, Any]], **bounds: int) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": {"anyOf": kinds}, **bounds}


#: a document of ops
OPS_DOCUMENT: dict[str, Any] = {
    "anyOf": [
        _object({**_HEAD, "key": _KEY, "ops": _ops(_FIELD_OPS)}, {"creates": {"type": "boolean"}}),
        _object({**_HEAD, "key": _KEY, "ops": _ops([_op("delete", {})], maxItems=1)}),
        _object({**_HEAD, "ops": _ops(_STREAM_OPS)}),
    ]
}
