"""Finishes a slice whose table has changed since: reads the current columns and fits them to the slice's columns.

A dropped column is NULL. A column of a wider or narrower type is cast exactly, or the slice fails. Any other change is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core import content as core
from penstock.core.drift import ChangeKind, kind_of_change, successors, types_by_name
from penstock.core.slices import Kind, Slice
from penstock.core.types import Plain
from penstock.errors import StreamRefused
from penstock.links.postgres.tables import Column, Table
from penstock.links.postgres.types import Form, choose_form, form_for
from penstock.ports import Reading
from penstock.shaping.fitting import FittedReader
from penstock.sources.postgres.content import TableContent, postgres_type_of
from penstock.sources.postgres.marks import have_same_order, keyset_mark


@dataclass(frozen=True, slots=True)
class CurrentSlice:
    """A slice in terms of its table's current columns."""

    #: with the columns and types that the table has now
    slice: Slice
    table: Table
    #: the slice's own columns
    columns: tuple[core.Column, ...]
    #: the differences, for messages
    changed: tuple[str, ...]

    def fit(self, reading: Reading) -> Reading:
        """Fit what is read to the slice's own columns."""
        if not self.changed:
            return reading
        columns = tuple((column.name, column.type) for column in self.columns)
        return replace(reading, reader=FittedReader(reading.reader, columns), changed=(*reading.changed, *self.changed))


def adapt_slice(slice_: Slice, table: Table) -> CurrentSlice:
    """Adapt a slice to its table; StreamRefused if a value would be lost."""
    content = TableContent.parse(slice_.content)
    for key in content.key:
        column = table.column(key.column)
        if column is None or not have_same_order(key.type, column.type):
            raise _column_error(slice_, content, key.column, key.type, column)
    present: list[core.Column] = []
    changed: list[str] = []
    for was in content.columns:
        column = table.column(was.name)
        if column is None:
            _check_not_renamed(slice_, content, table, was.name)
            changed.append(f"column {was.name} ({was.origin}) was dropped: it is NULL in this slice")
            continue
        now = _current_column(was, column, content.unfit)
        if now.type != was.type and kind_of_change(was.type, now.type) is ChangeKind.RETYPED:
            raise _column_error(slice_, content, was.name, was.described, column)
        if now.type != was.type or _form(now, content.unfit).type != was.type:
            changed.append(
                f"column {was.name} was {was.origin} and is {now.origin} now: it is {was.origin} in this slice"
            )
        present.append(now)
    if not present:
        raise _column_error(slice_, content, content.columns[0].name, content.columns[0].described, None)
    if tuple(present) != content.columns:
        slice_ = replace(slice_, content=replace(content, columns=tuple(present)).content().text)
    return CurrentSlice(slice_, table, content.columns, tuple(changed))


def _check_not_renamed(slice_: Slice, content: TableContent, table: Table, name: str) -> None:
    """StreamRefused if a column may have been renamed: reading NULL instead would lose its values."""
    now = {column.name: column.type for column in table.columns}
    candidates = successors(name, types_by_name(content.columns), now)
    if candidates:
        error = _column_error(slice_, content, name, "", None)
        error.what += f" (perhaps it was renamed to {candidates[0]})"
        raise error


def _current_column(was: core.Column, column: Column, unfit: str) -> core.Column:
    """A column of the table, in the slice's type if it can be read so."""
    now = replace(was, origin=column.type, base=column.base)
    try:
        form_for(postgres_type_of(now), was.type)
    except ValueError:
        return replace(now, type=_form(now, unfit).type)
    return now


def _form(column: core.Column, unfit: str) -> Form:
    """How a column is transferred by default; arrays that the slice has as text stay text."""
    arrays = "text" if column.type is Plain.STRING else "list"
    return choose_form(postgres_type_of(column), arrays=arrays, unfit=unfit)


def open_slice_error(stream: str, what: str, restore: str, otherwise: str = "") -> StreamRefused:
    """A slice that cannot be finished with the current table or server."""
    return StreamRefused(
        f"an open slice was planned differently: {what}",
        next_step=f"{restore}, so that the slice can be finished{otherwise}",
        stream=stream,
    )


def check_same_table(slice_: Slice, content: TableContent, table: Table, token: str, continues: str | None) -> None:
    """StreamRefused if an open slice was planned in another table of that name."""
    mark = keyset_mark(slice_.upto) if slice_.kind in (Kind.ROWS, Kind.REPAIR) else None
    if mark is None or mark.table is None or mark.table.oid == table.oid or continues == token:
        return
    raise open_slice_error(
        slice_.stream,
        f"it reads {content.table} with oid {mark.table.oid}, and the table of that name now has oid {table.oid}: it "
        "was replaced",
        "restore the first table",
        f"; or drop it with `penstock state recover FILE --stream {slice_.stream}`, then read the new table from the "
        f"beginning with `penstock state reset FILE --stream {slice_.stream}`",
    )


def _column_error(slice_: Slice, content: TableContent, name: str, type_: str, now: Column | None) -> StreamRefused:
    otherwise = (
        f"; or drop it with `penstock state recover FILE --stream {slice_.stream}`; the next one is planned again"
    )
    if now is None:
        what, restore = f"it reads {name} of {content.table}, which was dropped", "restore the column"
    else:
        what, restore = f"{name} of {content.table} was {type_} and is {now.type} now", "change the column back"
    return open_slice_error(slice_.stream, what, restore, otherwise)
