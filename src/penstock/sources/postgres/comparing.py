"""A table stream as a comparison sees it: its rows at or below the delivered mark, found by primary key.

Also plans and reads a repair: a slice that lists keys. Its rows are read as they are when it moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from penstock.core.content import Column
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.core.slices import Part, Slice
from penstock.core.types import Plain
from penstock.links.postgres.column_sql import unfit_condition
from penstock.links.postgres.literals import row_of, typed_literal
from penstock.links.postgres.row_digests import KeyPart, TableRows, canonical_text
from penstock.links.postgres.types import without_modifier
from penstock.ports import ComparedColumn, ComparedColumns, not_comparable
from penstock.sources.postgres import marks
from penstock.sources.postgres.content import TableContent, form_of, postgres_type_of
from penstock.sources.postgres.marks import KeysetMark, LoadMark
from penstock.sources.postgres.stream import TableStream

#: encodings whose byte order is that of UTF-8
_ENCODINGS = ("UTF8", "LATIN1", "SQL_ASCII")
#: the column that says whether a row is an upsert or a delete
CHANGE = "_change"


def choose_columns(stream: TableStream) -> ComparedColumns:
    """What can be compared; NotComparable if the stream cannot be compared."""
    content = stream.content
    if content.mode == "refresh":
        raise not_comparable(
            stream.name,
            "it is a full refresh: every run replaces all of it",
            "penstock run FILE replaces the sink's rows",
        )
    if not content.primary_key:
        raise not_comparable(
            stream.name, f"{content.table} has no primary key", "add one, or compare with a query of your own"
        )
    by_name = {column.name: column for column in content.columns}
    missing = [name for name in content.primary_key if name not in by_name]
    if missing:
        raise not_comparable(stream.name, f"its key column {missing[0]} is not read", f"add {missing[0]} to `columns`")
    for name in content.primary_key:
        part = _key_part(by_name[name])
        if part is None:
            type_ = by_name[name].described
            raise not_comparable(
                stream.name, f"its key column {name} is {type_}, which two systems may order differently"
            )
        if not part.native:
            _check_encoding(stream)
    skipped = {
        column.name: f"{column.described} has no exact text"
        for column in content.columns
        if canonical_text(sql.Identifier("t", column.name), column.type) is None
    }
    compared = [column for column in content.columns if column.name not in {*skipped, *content.primary_key}]
    return ComparedColumns(
        tuple(_compared(by_name[name]) for name in content.primary_key), tuple(map(_compared, compared)), skipped
    )


def require_mark(stream: TableStream, mark: Mark) -> KeysetMark:
    """The mark as one up to which everything was delivered; NotComparable if it is not."""
    ours = marks.read(mark)
    if isinstance(ours, LoadMark):
        raise not_comparable(
            stream.name, "its first load is not finished", "run the pipeline to the end first: penstock run FILE"
        )
    if not isinstance(ours, KeysetMark) or ours.key is None:
        raise not_comparable(stream.name, "nothing was delivered yet", "penstock run FILE")
    return ours


def open_rows(stream: TableStream, mark: Mark, columns: ComparedColumns, *, above: bool) -> TableRows:
    """The stream's rows at or below the mark, or `above` it too."""
    content, ours = stream.content, require_mark(stream, mark)
    by_name = {column.name: column for column in content.columns}
    table = stream.describe()
    parts = [part for each in columns.key if (part := _key_part(by_name[each.name]))]
    return TableRows(
        run=stream.rows,
        relation=sql.SQL("{} AS t").format(content.table.sql),
        condition=content.filter_sql if above else delivered_condition(content, ours),
        key=parts,
        values=[_text(by_name[each.name], content.unfit) for each in columns.values],
        indexed=table is not None and table.has_index_on(tuple(each.name for each in columns.key)),
        sees_all=True,
    )


def delivered_condition(content: TableContent, mark: KeysetMark) -> sql.Composed:
    """The rows that were delivered, as SQL about table `t`. Rows outside of `where` were not."""
    conditions = [content.range_sql(Range(None, mark.key)), content.filter_sql]
    if mark.leaves:
        conditions.append(sql.SQL("t.tableoid = ANY ({}::oid[])").format(sql.Literal(list(mark.leaves))))
    return sql.SQL(" AND ").join(conditions)


def _compared(column: Column) -> ComparedColumn:
    return ComparedColumn(column.name, column.type, postgres_type_of(column))


def _key_part(column: Column) -> KeyPart | None:
    return KeyPart.of(sql.Identifier("t", column.name), column.type, without_modifier(postgres_type_of(column)))


def _text(column: Column, unfit: str) -> sql.Composed:
    """The text of a column as it was delivered: values that Arrow cannot hold became NULL where that is configured."""
    text = canonical_text(sql.Identifier("t", column.name), column.type)
    assert text is not None
    condition = unfit_condition(column.name, postgres_type_of(column), form_of(column)) if unfit == "null" else None
    return sql.SQL("CASE WHEN {} THEN NULL ELSE {} END").format(condition, text) if condition else text


def _check_encoding(stream: TableStream) -> None:
    [[encoding]] = stream.rows(sql.SQL("SELECT current_setting('server_encoding')").format())
    if encoding not in _ENCODINGS:
        raise not_comparable(
            stream.name, f"its key is text, and the database's encoding {encoding} has another byte order"
        )


# ---------------------------------------------------------------- repairs


def plan_repair(keys: Sequence[Key], deletes: Sequence[Key], columns: Sequence[str]) -> Document:
    """The plan of a slice that delivers keys."""
    return {
        "columns": list(columns),
        "keys": [list(key) for key in keys],
        "deletes": [list(key) for key in deletes],
        "rows": len(keys) + len(deletes),
    }


def make_parts(slice_: Slice, plan: Mapping[str, Any], *, changes: bool) -> list[Part]:
    """The one part of a repair. It is small: the engine limits its keys."""
    terms: Document = {
        "repair": {
            "columns": plan["columns"],
            "keys": plan["keys"],
            "deletes": plan["deletes"],
            "changes": changes,
            "mark": slice_.upto.text if slice_.upto else None,
        }
    }
    return [Part(0, canonical(terms))]


def repair_relation(content: TableContent, repair: Mapping[str, Any]) -> sql.Composed:
    """The rows of a repair, as a relation that stands in the place of the table; `_change` is its last column.

    One statement, and so one snapshot: a key is deleted only if the table has no row of it, whatever its cursor and
    whether or not it meets `where`.
    """
    # By name: the role may be allowed to read only these columns.
    names = [column.name for column in content.columns if column.name != CHANGE]
    upserts = sql.SQL("SELECT {}, 'upsert'::text AS {} FROM {} AS t WHERE {}").format(
        _columns_of("t", names), sql.Identifier(CHANGE), content.table.sql, repair_condition(content, repair)
    )
    if not repair["deletes"]:
        return sql.SQL("({})").format(upserts)
    # A row of the table's own type with nothing but its key.
    documents = [canonical(dict(zip(repair["columns"], key, strict=True))) for key in repair["deletes"]]
    same = (
        sql.SQL("{} = {}").format(sql.Identifier("t", name), sql.Identifier("d", name)) for name in repair["columns"]
    )
    deletes = sql.SQL(
        "SELECT {}, 'delete'::text FROM unnest({}::text[]) AS k (document) "
        "CROSS JOIN LATERAL jsonb_populate_record(NULL::{}, k.document::jsonb) AS d "
        "WHERE NOT EXISTS (SELECT FROM {} AS t WHERE {})"
    ).format(
        _columns_of("d", names),
        sql.Literal(documents),
        content.table.sql,
        content.table.sql,
        sql.SQL(" AND ").join(same),
    )
    return sql.SQL("({} UNION ALL {})").format(upserts, deletes)


def _columns_of(row: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(row, name) for name in names)


def repair_condition(content: TableContent, repair: Mapping[str, Any]) -> sql.Composed:
    """The rows that a repair delivers, as SQL about table `t`: those of its keys, at or below its mark."""
    by_name = {column.name: column for column in content.columns}
    columns = [by_name[name] for name in repair["columns"]]
    parts = [part for column in columns if (part := _key_part(column))]
    mark = marks.keyset_mark(Mark(repair["mark"]))
    assert mark is not None
    assert len(parts) == len(columns)
    rows = (
        row_of([typed_literal(text, part.found_type) for part, text in zip(parts, key, strict=True)])
        for key in (*repair["keys"], *repair["deletes"])
    )
    which = sql.SQL("{} IN ({})").format(row_of([part.found_by for part in parts]), sql.SQL(", ").join(rows))
    return sql.SQL("{} AND {}").format(delivered_condition(content, mark), which)


def with_change(content: TableContent) -> TableContent:
    """The content of a repair that may delete: rows carry `_change`."""
    return replace(content, columns=(*content.columns, Column(CHANGE, Plain.STRING, "text")))
