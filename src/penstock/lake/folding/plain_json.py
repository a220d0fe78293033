"""Reads plain JSON in Arrow, a column at a time: how a document is known to be plain, and what makes columns of it.

One regular expression decides what is plain, and admits nothing that JSON does not. In a plain document a member's name
stands nowhere but before its value: inside a string its quotes have a backslash. So values of all types can be renamed
to strings by a replacement, and Arrow's JSON reader, whose columns have one type each, reads them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

#: places in a batch, and which of them
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

#: integers that have at most 64 bits, without looking; longer ones are not plain
INTEGER = "(?:0|-?[1-9][0-9]{0,17})"
#: numbers that Spark's variants hold exactly
_FRACTION = "-?(?:0|[1-9][0-9]{0,17})[.][0-9]{1,18}"
# Half of a surrogate pair is JSON, and no text anywhere else.
_ESCAPE = r'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))'
LETTERS = rf'(?:[^"\\\x00-\x1f]|{_ESCAPE})*'
STRING = f'"{LETTERS}"'
OTHER = f"(?:{_FRACTION}|{INTEGER}|true|false|null)"
_VALUE = f"(?:{STRING}|{OTHER})"
#: bytes of documents that are read at once; Arrow's texts have 2 GiB at most
_MAX_BYTES = 1 << 30

OP = pa.struct([(name, pa.string()) for name in ("op", "field", "string", "other", "old_string", "old_other")])

VARIANT = pa.struct([("kind", pa.string()), ("raw", pa.string())])
#: `documents.RAW`
ROWS = pa.schema(
    [
        *(("pos", pa.int64()), ("id", pa.int64()), ("at", pa.int64()), ("t", pa.string()), ("n", pa.int32())),
        *(("tbl", pa.string()), ("k", pa.list_(VARIANT)), ("f", pa.string()), ("kind", pa.string())),
        ("raw", pa.string()),
    ]
)
#: what makes every value a string, under a name that tells strings from others; the value before is rarely there
_VALUES = (('"value": *"', '"string":"'), (f'"value": *({OTHER})', r'"other":"\1"'))
_OLD = (('"old": *"', '"old_string":"'), (f'"old": *({OTHER})', r'"old_other":"\1"'))


def object_of(members: Sequence[str]) -> str:
    one = f"(?:{'|'.join(members)})"
    return rf"\{{ *{one}(?: *, *{one})* *\}}"


def array_of(each: str) -> str:
    return rf"\[ *(?:{each}(?: *, *{each})*)? *\]"


def parts_of(parts: Sequence[str]) -> str:
    """One part alone, or several in an array."""
    return parts[0] if len(parts) == 1 else rf"\[ *{' *, *'.join(parts)} *\]"


#: an op with a field and a value, and members that each document has
OP_PATTERN = object_of([f'"(?:op|field)": *{STRING}', f'"(?:value|old)": *{_VALUE}'])
HEADER = ('"v": *1', f'"table": *{STRING}', '"creates": *(?:true|false)')


def read_lines(texts: pa.Array, schema: pa.Schema, replacements: Sequence[tuple[str, str]]) -> pa.Table | None:
    """A row for each plain document; None: one of them has a member twice, or they are too long together."""
    if not len(texts):
        return schema.empty_table()
    if texts.nbytes > _MAX_BYTES:
        return None
    has_old = pc.any(pc.match_substring(texts, '"old"')).as_py()
    for pattern, by in [*_VALUES, *(_OLD if has_old else ()), *replacements]:
        texts = pc.replace_substring_regex(texts, pattern, by)
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    lines = pc.binary_join(whole, "\n")[0].as_buffer()
    try:
        found = pj.read_json(
            BytesIO(lines),
            pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            pj.ParseOptions(schema, newlines_in_values=False, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    return found.select(schema.names).combine_chunks()


# ------------------------------------------------------------ rows


def make_rows(
    documents: pa.RecordBatch, k: pa.Array, parent: Places, *, t: Any, n: Any, later: Any = 0, **values: pa.Array
) -> pa.RecordBatch:
    """Rows of documents, for each the place of its own in `parent`; `later`: how far after the document it is."""
    count, place = len(parent), pa.array(parent)
    given = {name: documents.column(name).take(place) for name in ("pos", "id", "at")}
    given["pos"] = pc.add(given["pos"], pa.array(np.broadcast_to(later, count), pa.int64()))
    given |= {**({} if k is None else {"k": k}), **values}
    given["t"] = pa.repeat(pa.scalar(t), count) if isinstance(t, str) else t
    given["n"] = pa.repeat(pa.scalar(n, pa.int32()), count) if isinstance(n, int) else pa.array(n, pa.int32())
    given.setdefault("kind", pa.repeat(pa.scalar("VOID"), count))
    columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def make_open_rows(documents: pa.RecordBatch) -> pa.RecordBatch:
    """Documents that Spark must look at."""
    count = documents.num_rows
    given = {name: documents.column(name) for name in ("pos", "id", "at")}
    given |= {"raw": documents.column("document"), "t": pa.repeat(pa.scalar("?"), count)}
    given |= {"n": pa.repeat(pa.scalar(-1, pa.int32()), count), "kind": pa.repeat(pa.scalar("VOID"), count)}
    columns = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def make_report_row(text: str) -> pa.RecordBatch:
    """A row that is no document's: what a worker says about all of them."""
    given: dict[str, Any] = {"pos": -1, "t": "!", "n": -1, "kind": "VOID", "raw": text}
    return pa.RecordBatch.from_pylist([given], schema=ROWS)


# ------------------------------------------------------------ columns


def flatten(ops: Any) -> tuple[Places, pa.RecordBatch]:
    """The members of lists of structs, and the place of the list that each is from."""
    lists = ops.combine_chunks() if isinstance(ops, pa.ChunkedArray) else ops
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], ops.type)
    flat = pc.list_flatten(lists)
    parent = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(flat):
        return parent, pa.RecordBatch.from_pylist([], schema=pa.schema(list(ops.type.value_type)))
    return parent, pa.RecordBatch.from_struct_array(flat)


def number_ops(parent: Places) -> Places:
    """The number of each op in its document."""
    if not len(parent):
        return parent
    begins = np.flatnonzero(np.diff(parent, prepend=-1))
    found: Places = np.arange(len(parent)) - np.repeat(begins, np.diff([*begins, len(parent)]))
    return found


def json_types(ops: pa.RecordBatch) -> pa.Array:
    other = ops.column("other")
    cases = pa.StructArray.from_arrays(
        [
            pc.is_valid(ops.column("string")),
            matches(other, "^[tf]"),
            matches(other, "[.]"),
            matches(other, "^[-0-9]"),
        ],
        names=list("abcd"),
    )
    return pc.case_when(cases, *(pa.scalar(each) for each in ("STRING", "BOOLEAN", "DECIMAL", "BIGINT", "VOID")))


def raw_of(ops: pa.RecordBatch) -> pa.Array:
    other = ops.column("other")
    is_null = matches(other, "^null$")
    return pc.coalesce(ops.column("string"), pc.if_else(is_null, pa.scalar(None, pa.string()), other))


def has_any(ops: pa.RecordBatch, *names: str) -> pa.Array:
    return pc.or_(*(pc.is_valid(ops.column(name)) for name in names))


def matches(column: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(column, pattern), False)


def equals(column: pa.Array, text: str) -> pa.Array:
    return pc.fill_null(pc.equal(column, text), False)


def is_one_of(column: pa.Array, columns: Sequence[Any]) -> pa.Array:
    return pc.is_in(column, pa.array([each.name for each in columns], pa.string()))


def all_of(*conditions: Any) -> Any:
    found = conditions[0]
    for each in conditions[1:]:
        found = pc.and_(found, each)
    return found


def mask_of(mask: Any) -> Mask:
    found: Mask = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask.to_numpy()
    return found.astype(np.bool_)


def mask_at(places: Places, count: int) -> pa.BooleanArray:
    found = np.zeros(count, np.bool_)
    found[places] = True
    return pa.array(found)
