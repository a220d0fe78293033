"""Understands the few documents that SQL does not, in Python workers, by the reference fold's own rules."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import pyarrow as pa

from penstock.core.ops import FanOut, Layout, Row, State, fold, header_refusal
from penstock.core.ops.wire import MAX_INTEGER
from penstock.lake.folding.staging import PLACES

_VALUE = pa.struct([("kind", pa.string()), ("raw", pa.string())])
_SCHEMA = pa.schema(
    [
        *(("pos", pa.int64()), ("id", pa.int64()), ("at", pa.int64()), ("t", pa.string()), ("n", pa.int32())),
        *(("tbl", pa.string()), ("k", pa.list_(_VALUE)), ("f", pa.string()), ("kind", pa.string())),
        ("raw", pa.string()),
    ]
)
#: ops on all entities that one document may have: each has a place of its own in the order
MAX_STREAM_OPS = PLACES - 1

Value = dict[str, str | None]
Found = dict[str, Any]


def rows_of_batches(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    layout: Layout = pickle.loads(payload)
    for batch in batches:
        rows = [
            {"id": each["id"], "at": each["at"], **row, "pos": each["pos"] + row["pos"]}
            for each in batch.to_pylist()
            for row in rows_of(each["document"], layout, only=None if each["f"] is None else int(each["f"]))
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def rows_of(text: str | None, layout: Layout, only: int | None = None) -> Iterator[Found]:
    """The rows of one document; `pos` counts from the document's own place.

    `only`: of this op alone; SQL has understood the document itself, and its other ops.
    """
    try:
        document = json.loads(text or "")
    except (ValueError, RecursionError) as error:
        yield _bad(None, f"not JSON: {error}", _shown(text))
        return
    reason = header_refusal(document) or _key_refusal(document, layout) or _length_refusal(document)
    if reason is not None:
        yield _bad(None, reason, _shown(text))
        return
    # The reference says which ops it does not take, and why.
    refused = fold(State(), layout.shape, [Row(0, document)]).quarantined
    chosen = document["ops"] if only is None else [document["ops"][only]]
    for each in refused:
        # Ops inside a `query_op_set` are refused too; a document with one is read whole.
        if only is None or any(each.op is op for op in chosen):
            yield _bad(each.op, each.reason)
    out = {id(each.op) for each in refused}
    key = [make_value(part) for part in _parts(document["key"])] if "key" in document else None
    if key is not None and document.get("creates", False) and only is None:
        yield _row("b", k=key)
    for place, op in enumerate(document["ops"]):
        if id(op) not in out and only in (None, place):
            yield from _rows_of_op(document["table"], op, place, key, layout, out)


def _rows_of_op(
    table: str, op: Mapping[str, Any], place: int, key: list[Value] | None, layout: Layout, out: set[int]
) -> Iterator[Found]:
    if key is not None:
        yield _row(_kind(op), n=place, k=key, f=op.get("field"), value=_value_of(op))
    elif op["op"] == "clear":
        yield _row("k" if "field" in op else "c", pos=place, n=place, tbl=table, f=op.get("field"))
    else:
        inner = [each for each in op["ops"] if id(each) not in out]
        fan_out = layout.shape.fan_out_of(table)
        if fan_out is not None:
            for match in _matches(fan_out, op["where"]):
                for n, each in enumerate(inner):
                    yield _row("f", pos=place, n=n, tbl=table, k=match, f=each["field"], value=_value_of(each))
            return
        yield _row("q", pos=place, n=-1, raw=json.dumps(op["where"]))
        for n, each in enumerate(inner):
            yield _row(f"Q{_kind(each)}", pos=place, n=n, f=each["field"], value=_value_of(each))


def _kind(op: Mapping[str, Any]) -> str:
    if op["op"] == "remove":
        return "r" if "value" in op else "s"
    return str({"set": "s", "add": "a", "delete": "d"}[op["op"]])


def _matches(fan_out: FanOut, where: Mapping[str, Any]) -> Iterator[list[Value]]:
    accepted = dict(_comparisons(where))
    for match in product(*(accepted[name] for name in fan_out.match)):
        yield [make_value(value) for value in match]


def _comparisons(where: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    if "and" in where:
        for part in where["and"]:
            yield from _comparisons(part)
    else:
        yield where["field"], where["in"] if "in" in where else [where["eq"]]


def _value_of(op: Mapping[str, Any]) -> Value:
    return make_value(op.get("value"))


def make_value(value: Any) -> Value:
    """A JSON value as a variant of Spark would tell its type and its string."""
    if value is None:
        return {"kind": "VOID", "raw": None}
    if isinstance(value, bool):
        return {"kind": "BOOLEAN", "raw": "true" if value else "false"}
    if isinstance(value, int):
        return {"kind": "BIGINT" if -MAX_INTEGER - 1 <= value <= MAX_INTEGER else "DECIMAL", "raw": str(value)}
    if isinstance(value, float):
        return {"kind": "DOUBLE", "raw": repr(value)}
    if isinstance(value, str) and _is_unicode(value):
        return {"kind": "STRING", "raw": value}
    return {"kind": "OBJECT", "raw": json.dumps(value, separators=(",", ":"))}


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair is JSON, and no text anywhere else."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _parts(key: Any) -> list[Any]:
    return key if isinstance(key, list) else [key]


def _key_refusal(document: Mapping[str, Any], layout: Layout) -> str | None:
    parts = len(_parts(document["key"])) if "key" in document else len(layout.key)
    if parts == len(layout.key):
        return None
    columns = ", ".join(column.name for column in layout.key)
    return f"`key` has {parts} parts, and the key of an entity has {len(layout.key)} ({columns})"


def _length_refusal(document: Mapping[str, Any]) -> str | None:
    if "key" in document or len(document["ops"]) <= MAX_STREAM_OPS:
        return None
    return f"`ops` has more than {MAX_STREAM_OPS} ops on all entities; send several documents"


def _bad(op: Any, reason: str, text: str | None = None) -> Found:
    return _row("x", f=reason, raw=text if text is not None else json.dumps(op))


def _shown(text: str | None) -> str:
    return text or ""


def _plain(text: str | None) -> str | None:
    return text if text is None or _is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()


def _row(
    kind_of_row: str,
    *,
    pos: int = 0,
    n: int = -1,
    tbl: str | None = None,
    k: list[Value] | None = None,
    f: str | None = None,
    value: Value | None = None,
    raw: str | None = None,
) -> Found:
    kind = "VOID"
    if value is not None:
        kind, raw = str(value["kind"]), value["raw"]
    return {
        "pos": pos,
        "t": kind_of_row,
        "n": n,
        "tbl": _plain(tbl),
        "k": k,
        "f": _plain(f),
        "kind": kind,
        "raw": _plain(raw),
    }
