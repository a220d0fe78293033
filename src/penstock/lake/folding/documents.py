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

from penstock.core.content import Column
from penstock.core.ops import Layout
from penstock.core.types import Type
from penstock.lake.folding.values import join_texts, literal, text_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: rows as documents give them: values as JSON
RAW = (
    "pos bigint, id bigint, at bigint, t string, n int, tbl string, "
    "k array<struct<kind: string, raw: string>>, f string, kind string, raw string"
)
#: a document as its members. In `inline`, which the optimizer keeps from being evaluated again for each use
_PARSED = "try_variant_get(try_parse_json(document), '$', 'map<string, variant>')"
#: half of a surrogate pair would become a question mark
_WHOLE_LETTERS = f"instr(document, {literal(chr(92) + 'ud')}) = 0 and instr(document, {literal(chr(92) + 'uD')}) = 0"
#: rows as the fold reads them: `ek` is the text of the entity's key or of the match, `v` that of the value
OPS = "pos bigint, id bigint, at bigint, t string, n int, tbl string, ek string, f string, v string"

#: the value of an op, and of one inside `query_op_set`
_VALUE_OF_X, _VALUE_OF_Y = "x['value']", "y['value']"
#: kinds with a value that must convert
_VALUED = "('s', 'a', 'r', 'f', 'Qs', 'Qa', 'Qr')"


def read_ops(raw: DataFrame, layout: Layout, *, is_open: bool) -> DataFrame:
    """The rows of documents, `OPS`, from those that workers made of them; `is_open`: some of them are of kind `?`.

    Rows that are used several times are checkpointed, not cached: Spark does not find them again in a union.
    """
    if is_open:
        found = raw_rows(raw.where("t = '?'").selectExpr("pos", "id", "at", "raw as document"), layout)
        found = found.localCheckpoint()
        if found.where("t = '?'").limit(1).count():
            found = read_irregular(found, layout)
        raw = raw.where("t <> '?'").unionByName(found)
    return typed_rows(raw, layout)


def raw_rows(documents: DataFrame, layout: Layout) -> DataFrame:
    """Rows of the documents; what SQL does not understand yet is a row of kind `?`: a document, or one op of it.

    Documents of one entity are understood here; those of declared fan-outs by `read_irregular`, with the rest.
    """
    parsed = documents.selectExpr("*", f"inline(array(named_struct('m', {_PARSED})))")
    parsed = parsed.selectExpr(
        "*",
        "try_variant_get(m['ops'], '$', 'array<map<string, variant>>') as o",
        "coalesce(try_variant_get(m['creates'], '$', 'boolean'), false) as creates",
    )
    parsed = parsed.selectExpr("*", f"coalesce({_is_regular(layout)}, false) as regular")
    no_op = "cast(map() as map<string, variant>)"
    rows = parsed.selectExpr(
        *("pos", "id", "at", "document", "regular", "creates"),
        f"if(regular, {_key_parts(layout)}, null) as k",
        f"posexplode(if(regular, if(creates, concat(array({no_op}), o), o), array({no_op}))) as (place, x)",
    )
    value = "map_contains_key(x, 'value')"
    members = (
        f"named_struct('word', try_variant_get(x['op'], '$', 'string'), 'f', {_text('x', 'field')}, 'has', {value}, "
        "'has_old', map_contains_key(x, 'old'), "
        "'size', cardinality(x) - cast(map_contains_key(x, 'old') as int), "
        f"'kind', if({value}, schema_of_variant({_VALUE_OF_X}), 'VOID'), "
        f"'raw', if({value}, {_string(_VALUE_OF_X)}, null))"
    )
    ops = rows.selectExpr(
        *("pos", "id", "at", "document", "regular", "k", "place - cast(creates as int) as n"),
        f"inline(array({members}))",
    )
    kinds = ops.selectExpr("*", f"inline(array(named_struct('t', {_own_kind(layout)})))")
    return kinds.selectExpr(
        *(
            "pos",
            "id",
            "at",
            "t",
            "if(t = '?', -1, n) as n",
            "cast(null as string) as tbl",
            "if(t = '?', null, k) as k",
        ),
        "if(t = '?', if(regular, cast(n as string), null), f) as f",
        *("if(t = '?', 'VOID', kind) as kind", "if(t = '?', document, raw) as raw"),
    )


def read_irregular(raw: DataFrame, layout: Layout) -> DataFrame:
    """The rows, with those of kind `?` as the reference understands them."""
    open_ = raw.where("t = '?'").selectExpr("pos", "id", "at", "f", "raw as document")
    payload = pickle.dumps(layout)

    def judge(batches):  # type: ignore[no-untyped-def]  # a worker imports the module that has the types
        from penstock.lake.folding.irregular import rows_of_batches

        return rows_of_batches(payload, batches)

    return raw.where("t <> '?'").unionByName(open_.mapInArrow(judge, RAW))


def typed_rows(raw: DataFrame, layout: Layout) -> DataFrame:
    """The rows with keys, matches and values as texts of their types; what does not convert is of kind `x`."""
    keys = _key(layout)
    value = _case(
        "f", {column.name: text_of_json("kind", "raw", column.type) for column in (*layout.scalars, *layout.multi)}
    )
    typed = raw.selectExpr("*", f"inline(array(named_struct('ek', {keys}, 'value', {value})))")
    named = "concat(case when t = 'f' then 'the match of fan-out ' || tbl else 'the key' end, ' ', to_json(k.raw))"
    reason = (
        "case when t in ('b', 's', 'a', 'r', 'd', 'f') and ek is null then "
        f"{named} || ' does not fit the declared type' "
        f"when t in {_VALUED} and kind <> 'VOID' and value is null then "
        f"concat('the value ', {_json_text('kind', 'raw')}, ' of field ', f, "
        f"' is not of its type ', {_types(layout)}) end"
    )
    judged = typed.selectExpr("*", f"inline(array(named_struct('reason', {reason})))")
    bad = "reason is not null"
    return judged.selectExpr(
        *("pos", "id", "at", f"if({bad}, 'x', t) as t", "n", f"if({bad}, to_json(k.raw), tbl) as tbl", "ek"),
        f"if({bad}, reason, f) as f",
        f"if({bad}, {_op_text()}, if(t in {_VALUED}, value, raw)) as v",
    )


# ------------------------------------------------------------ one document


def _is_regular(layout: Layout) -> str:
    """Whether SQL understands a document of one entity, apart from its single ops."""
    count = "3 + cast(map_contains_key(m, 'key') as int) + cast(map_contains_key(m, 'creates') as int)"
    # A delete must be the only op of a document. It could hide only behind an escape that nobody writes.
    letters = " or ".join(f"instr(document, {literal(text)}) > 0" for text in ("delete", "\\u006", "\\u007"))
    return (
        f"{_WHOLE_LETTERS} and m is not null and o is not null and cardinality(m) = {count} "
        "and schema_of_variant(m['v']) = 'BIGINT' and variant_get(m['v'], '$', 'bigint') = 1 "
        "and schema_of_variant(m['table']) = 'STRING' and variant_get(m['table'], '$', 'string') <> '' "
        "and (not map_contains_key(m, 'creates') or schema_of_variant(m['creates']) = 'BOOLEAN') "
        f"and map_contains_key(m, 'key') and {_has_key(layout)} and (size(o) > 0 or creates) "
        f"and (size(o) = 1 and not creates or not ({letters}))"
    )


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


def _own_kind(layout: Layout) -> str:
    """The kind of an op's row; it needs the right members, and a field of the right kind."""
    scalars, multi = _is_one_of(layout.scalars), _is_one_of(layout.multi)
    simple = "kind in ('STRING', 'BIGINT', 'BOOLEAN')"
    return (
        "case when not regular then '?' when n < 0 then 'b' "
        f"when word = 'set' and {scalars} and has and size = 3 then 's' "
        f"when word = 'remove' and {scalars} and not has and size = 2 then 's' "
        f"when word = 'remove' and {multi} and has and {simple} and size = 3 then 'r' "
        f"when word = 'add' and {multi} and has and {simple} and size = 3 and not has_old then 'a' "
        "when word = 'delete' and size = 1 and not has_old then 'd' else '?' end"
    )


def _text(map_: str, member: str) -> str:
    """A member if it is a string; otherwise NULL."""
    found = f"{map_}[{literal(member)}]"
    return f"if(schema_of_variant({found}) = 'STRING', variant_get({found}, '$', 'string'), null)"


def _is_one_of(columns: Sequence[Column]) -> str:
    names = ", ".join(literal(column.name) for column in columns)
    return f"f in ({names})" if names else "false"


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
