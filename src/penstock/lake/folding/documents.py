"""Turns documents into rows of ops, in Spark SQL; those that SQL does not understand at once go through Python workers.

A row of ops has a kind `t`:

    b    a document that creates its entity            s    a scalar field gets a value, or null
    a, r a value goes into a multi-value field, or out of it
    d    the entity is deleted                         f    a declared fan-out sets a field for a match
    c, k every entity is cleared, or a field of all    q    the filter of an undeclared `query_op_set`
    Qs, Qa, Qr: an op that it applies to what matches  x    in quarantine, with the reason
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.ops import FanOut, Layout
from penstock.core.types import Type
from penstock.lake.folding.values import join_texts, literal, text_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: rows as documents give them: values as JSON
RAW = (
    "pos bigint, id bigint, at bigint, t string, n int, tbl string, "
    "k array<struct<kind: string, raw: string>>, f string, kind string, raw string"
)
_ROW = (
    "array<struct<t: string, n: int, tbl: string, k: array<struct<kind: string, raw: string>>, f: string, "
    "kind: string, raw: string>>"
)
#: rows as the fold reads them: `ek` is the text of the entity's key or of the match, `v` that of the value
OPS = "pos bigint, id bigint, at bigint, t string, n int, tbl string, ek string, f string, v string"

#: the value of an op, and of one inside `query_op_set`
_VALUE_OF_X, _VALUE_OF_Y = "x['value']", "y['value']"
#: kinds with a value that must convert
_VALUED = "('s', 'a', 'r', 'f', 'Qs', 'Qa', 'Qr')"


def raw_rows(documents: DataFrame, layout: Layout) -> DataFrame:
    """Rows of the documents; one that SQL does not understand is a single row of kind `?`."""
    parsed = documents.selectExpr("*", "try_variant_get(try_parse_json(document), '$', 'map<string, variant>') as m")
    parsed = parsed.selectExpr("*", "try_variant_get(m['ops'], '$', 'array<map<string, variant>>') as o")
    rows = parsed.selectExpr("pos", "id", "at", f"{_rows_of_document(layout)} as rows")
    return rows.selectExpr("pos", "id", "at", "inline(rows)")


def read_irregular(raw: DataFrame, layout: Layout) -> DataFrame:
    """The rows, with those of kind `?` as the reference understands them."""
    payload = pickle.dumps(layout)

    def judge(batches):  # type: ignore[no-untyped-def]  # a worker imports the module that has the types
        from penstock.lake.folding.irregular import rows_of_batches

        return rows_of_batches(payload, batches)

    irregular = raw.where("t = '?'").select("pos", "id", "at", "raw").mapInArrow(judge, RAW)
    return raw.where("t <> '?'").unionByName(irregular)


def typed_rows(raw: DataFrame, layout: Layout) -> DataFrame:
    """The rows with keys, matches and values as texts of their types; what does not convert is of kind `x`."""
    keys = _key(layout)
    value = _case(
        "f", {column.name: text_of_json("kind", "raw", column.type) for column in (*layout.scalars, *layout.multi)}
    )
    typed = raw.selectExpr("*", f"{keys} as ek", f"{value} as v")
    named = "concat(case when t = 'f' then 'the match of fan-out ' || tbl else 'the key' end, ' ', to_json(k.raw))"
    reason = (
        "case when t in ('b', 's', 'a', 'r', 'd', 'f') and ek is null then "
        f"{named} || ' does not fit the declared type' "
        f"when t in {_VALUED} and kind <> 'VOID' and v is null then "
        f"concat('the value ', {_json_text('kind', 'raw')}, ' of field ', f, "
        f"' is not of its type ', {_types(layout)}) end"
    )
    op = _op_text()
    judged = typed.selectExpr("*", f"{reason} as reason", f"{op} as op")
    bad = "reason is not null"
    return judged.selectExpr(
        "pos",
        "id",
        "at",
        f"if({bad}, 'x', t) as t",
        "n",
        f"if({bad}, to_json(k.raw), tbl) as tbl",
        "ek",
        f"if({bad}, reason, f) as f",
        f"if({bad}, op, if(t in {_VALUED}, v, raw)) as v",
    )


# ------------------------------------------------------------ one document


def _rows_of_document(layout: Layout) -> str:
    count = "3 + cast(map_contains_key(m, 'key') as int) + cast(map_contains_key(m, 'creates') as int)"
    creates = "coalesce(try_variant_get(m['creates'], '$', 'boolean'), false)"
    header = (
        f"m is not null and o is not null and cardinality(m) = {count} "
        f"and schema_of_variant(m['v']) = 'BIGINT' and variant_get(m['v'], '$', 'bigint') = 1 "
        f"and schema_of_variant(m['table']) = 'STRING' and variant_get(m['table'], '$', 'string') <> '' "
        f"and (not map_contains_key(m, 'creates') or schema_of_variant(m['creates']) = 'BOOLEAN')"
    )
    entity = (
        f"map_contains_key(m, 'key') and {_has_key(layout)} and (size(o) > 0 or {creates}) "
        f"and ({_entity_ops(layout, creates)})"
    )
    key = _key_parts(layout)
    own = (
        f"concat(if({creates}, {_array(_row('b', k=key))}, cast(array() as {_ROW})), "
        f"transform(o, (x, i) -> {_own_row(key)}))"
    )
    cases = [f"when {entity} then {own}"]
    for fan_out in layout.fan_outs:
        if len(fan_out.match) == 1:
            cases.append(f"when {_is_fan_out(fan_out)} then {_fan_rows(fan_out)}")
    other = _array(_row("?", raw="document"))
    return f"if(coalesce({header}, false), case {' '.join(cases)} else {other} end, {other})"


def _has_key(layout: Layout) -> str:
    if len(layout.key) == 1:
        return "schema_of_variant(m['key']) in ('BIGINT', 'STRING')"
    parts = "try_variant_get(m['key'], '$', 'array<variant>')"
    return (
        f"coalesce(size({parts}) = {len(layout.key)} and "
        f"forall({parts}, p -> schema_of_variant(p) in ('BIGINT', 'STRING')), false)"
    )


def _key_parts(layout: Layout) -> str:
    if len(layout.key) == 1:
        key = _value("m['key']")
        return f"array({key})"
    return f"transform(try_variant_get(m['key'], '$', 'array<variant>'), p -> {_value('p')})"


def _value(variant: str) -> str:
    return f"named_struct('kind', schema_of_variant({variant}), 'raw', {_string(variant)})"


def _string(variant: str) -> str:
    return (
        f"coalesce(try_variant_get({variant}, '$', 'string'), if(is_variant_null({variant}), null, to_json({variant})))"
    )


def _entity_ops(layout: Layout, creates: str) -> str:
    """Whether SQL understands every op: it has the right members, and names a field of the right kind."""
    scalars, multi = _is_one_of("field", layout.scalars), _is_one_of("field", layout.multi)
    old = "cast(map_contains_key(x, 'old') as int)"
    value = "map_contains_key(x, 'value')"
    scalar_value = "schema_of_variant(x['value']) in ('STRING', 'BIGINT', 'BOOLEAN')"
    ok = (
        f"case {_text('x', 'op')} "
        f"when 'set' then {scalars} and {value} and cardinality(x) = 3 + {old} "
        f"when 'remove' then ({scalars} and not {value} and cardinality(x) = 2 + {old}) "
        f"or ({multi} and {value} and {scalar_value} and cardinality(x) = 3 + {old}) "
        f"when 'add' then {multi} and {value} and {scalar_value} and cardinality(x) = 3 "
        f"when 'delete' then size(o) = 1 and cardinality(x) = 1 and not {creates} "
        f"else false end"
    )
    return f"coalesce(forall(o, x -> coalesce({ok}, false)), false)"


def _own_row(key: str) -> str:
    kind = (
        f"case {_text('x', 'op')} when 'set' then 's' when 'add' then 'a' when 'delete' then 'd' "
        "else if(map_contains_key(x, 'value'), 'r', 's') end"
    )
    has = "map_contains_key(x, 'value')"
    return (
        f"named_struct('t', {kind}, 'n', i, 'tbl', cast(null as string), 'k', {key}, 'f', {_text('x', 'field')}, "
        f"'kind', if({has}, schema_of_variant(x['value']), 'VOID'), 'raw', if({has}, {_string(_VALUE_OF_X)}, null))"
    )


def _is_fan_out(fan_out: FanOut) -> str:
    """Whether a document has only plain ops of this fan-out: one field `eq` one value."""
    where = "try_variant_get(x['where'], '$', 'map<string, variant>')"
    fields = ", ".join(literal(name) for name in fan_out.fields)
    inner = "try_variant_get(x['ops'], '$', 'array<map<string, variant>>')"
    old = "cast(map_contains_key(y, 'old') as int)"
    value = "map_contains_key(y, 'value')"
    inner_ok = (
        f"{_text('y', 'field')} in ({fields}) and case {_text('y', 'op')} "
        f"when 'set' then {value} and cardinality(y) = 3 + {old} "
        f"when 'remove' then not {value} and cardinality(y) = 2 + {old} else false end"
    )
    ok = (
        f"{_text('x', 'op')} = 'query_op_set' and cardinality(x) = 3 and cardinality({where}) = 2 "
        f"and {_text(where, 'field')} = {literal(fan_out.match[0])} "
        f"and schema_of_variant({where}['eq']) in ('STRING', 'BIGINT', 'BOOLEAN') "
        f"and size({inner}) > 0 and forall({inner}, y -> coalesce({inner_ok}, false))"
    )
    return (
        f"not map_contains_key(m, 'key') and size(o) between 1 and 1000 and not map_contains_key(m, 'creates') "
        f"and {_text('m', 'table')} = {literal(fan_out.table)} and forall(o, x -> coalesce({ok}, false))"
    )


def _fan_rows(fan_out: FanOut) -> str:
    has = "map_contains_key(y, 'value')"
    match = "variant_get(x['where'], '$.eq', 'variant')"
    row = (
        f"named_struct('t', 'f', 'n', i * 1000 + j, 'tbl', {literal(fan_out.table)}, 'k', array({_value(match)}), "
        f"'f', {_text('y', 'field')}, 'kind', if({has}, schema_of_variant(y['value']), 'VOID'), "
        f"'raw', if({has}, {_string(_VALUE_OF_Y)}, null))"
    )
    inner = "try_variant_get(x['ops'], '$', 'array<map<string, variant>>')"
    return f"flatten(transform(o, (x, i) -> transform({inner}, (y, j) -> {row})))"


def _row(kind: str, *, k: str = "cast(null as array<struct<kind: string, raw: string>>)", raw: str = "null") -> str:
    return (
        f"named_struct('t', {literal(kind)}, 'n', -1, 'tbl', cast(null as string), 'k', {k}, "
        f"'f', cast(null as string), 'kind', 'VOID', 'raw', cast({raw} as string))"
    )


def _array(row: str) -> str:
    return f"array({row})"


def _text(map_: str, member: str) -> str:
    """A member if it is a string; otherwise NULL."""
    found = f"{map_}[{literal(member)}]"
    return f"if(schema_of_variant({found}) = 'STRING', variant_get({found}, '$', 'string'), null)"


def _is_one_of(member: str, columns: Sequence[object]) -> str:
    names = ", ".join(literal(column.name) for column in columns)  # type: ignore[attr-defined]  # columns
    return f"{_text('x', member)} in ({names})" if names else "false"


# ------------------------------------------------------------ types


def _key(layout: Layout) -> str:
    def of(types: Sequence[Type]) -> str:
        texts = [
            text_of_json(f"get(k, {place}).kind", f"get(k, {place}).raw", type_) for place, type_ in enumerate(types)
        ]
        return join_texts(texts)

    own = of([column.type for column in layout.key])
    types = {column.name: column.type for column in layout.scalars}
    fans = {each.table: of([types[name] for name in each.match]) for each in layout.fan_outs}
    return f"case when t = 'f' then {_case('tbl', fans)} when t in ('b', 's', 'a', 'r', 'd') then {own} end"


def _types(layout: Layout) -> str:
    return _case("f", {each.name: literal(each.described) for each in (*layout.scalars, *layout.multi)})


def _case(value: str, cases: Mapping[str, str]) -> str:
    if not cases:
        return "cast(null as string)"
    return f"case {value} {' '.join(f'when {literal(name)} then {found}' for name, found in cases.items())} end"


def _op_text() -> str:
    """An op as JSON, for the quarantine."""
    words = {"s": "set", "a": "add", "r": "remove", "d": "delete", "f": "set", "Qs": "set", "Qa": "add", "Qr": "remove"}
    word = _case("t", {kind: literal(word) for kind, word in words.items()})
    plain = f"to_json(named_struct('op', {word}, 'field', f))"
    valued = f"concat(substr({plain}, 1, length({plain}) - 1), ',\"value\":', {_json_text('kind', 'raw')}, '}}')"
    return f"if(t = 'b', null, if(t = 'd', {plain}, {valued}))"


def _json_text(kind: str, raw: str) -> str:
    # Spark quotes a string only as a member: {"a":"..."}
    member = f"to_json(named_struct('a', {raw}))"
    quoted = f"substr({member}, 6, length({member}) - 6)"
    return f"case when {kind} = 'VOID' or {raw} is null then 'null' when {kind} = 'STRING' then {quoted} else {raw} end"
