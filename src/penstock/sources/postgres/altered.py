"""A slice that is open while its table has changed: what the table has now is read, and fitted to the slice's columns.

A column that is gone is NULL; one of a wider or narrower type is cast, exactly or not at all. Everything else is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core import content as core
from penstock.core.drift import ChangeKind, kind_of_change, successors, types_by_name
from penstock.core.slices import Slice
from penstock.core.types import Plain
from penstock.errors import StreamRefused
from penstock.links.postgres.types import Form, choose_form, form_for
from penstock.ports import Reading
from penstock.shaping.fitting import FittedReader
from penstock.sources.postgres.catalog import Column, Table
from penstock.sources.postgres.content import TableContent, declared
from penstock.sources.postgres.marks import alike


@dataclass(frozen=True, slots=True)
class AsNow:
    """A slice in terms of what its table has now."""

    #: with the columns that the table has, in their types
    slice: Slice
    table: Table
    #: the slice's own columns
    columns: tuple[core.Column, ...]
    #: what is not as it was, in words
    changed: tuple[str, ...]

    def fitted(self, reading: Reading) -> Reading:
        """What is read, as the slice says it."""
        if not self.changed:
            return reading
        columns = tuple((column.name, column.type) for column in self.columns)
        return replace(reading, reader=FittedReader(reading.reader, columns), changed=(*reading.changed, *self.changed))


def as_now(slice_: Slice, table: Table) -> AsNow:
    """A slice against its table; StreamRefused if what it says cannot be had from it without losing a value."""
    content = TableContent.parse(slice_.content)
    for key in content.key:
        column = table.column(key.column)
        if column is None or not alike(key.type, column.type):
            raise _refused(slice_, content, key.column, key.type, column)
    present: list[core.Column] = []
    changed: list[str] = []
    for was in content.columns:
        column = table.column(was.name)
        if column is None:
            _must_be_gone(slice_, content, table, was.name)
            changed.append(f"column {was.name} ({was.origin}) is gone: it is NULL in this slice")
            continue
        now = _read_now(was, column, content.unfit)
        if now.type != was.type and kind_of_change(was.type, now.type) is ChangeKind.RETYPED:
            raise _refused(slice_, content, was.name, was.described, column)
        if now.type != was.type or _form(now, content.unfit).type != was.type:
            changed.append(
                f"column {was.name} was {was.origin} and is {now.origin} now: it is {was.origin} in this slice"
            )
        present.append(now)
    if not present:
        raise _refused(slice_, content, content.columns[0].name, content.columns[0].described, None)
    if tuple(present) != content.columns:
        slice_ = replace(slice_, content=replace(content, columns=tuple(present)).content().text)
    return AsNow(slice_, table, content.columns, tuple(changed))


def _must_be_gone(slice_: Slice, content: TableContent, table: Table, name: str) -> None:
    """A column that was perhaps renamed still has its values: to read it as NULL would lose them for good."""
    now = {column.name: column.type for column in table.columns}
    found = successors(name, types_by_name(content.columns), now)
    if found:
        error = _refused(slice_, content, name, "", None)
        error.what += f" (perhaps it was renamed to {found[0]})"
        raise error


def _read_now(was: core.Column, column: Column, unfit: str) -> core.Column:
    """A column as the table has it, in the slice's type if it can come so."""
    now = replace(was, origin=column.type, base=column.base)
    try:
        form_for(declared(now), was.type)
    except ValueError:
        return replace(now, type=_form(now, unfit).type)
    return now


def _form(column: core.Column, unfit: str) -> Form:
    """How a column travels by itself; arrays that were asked for as text stay so."""
    arrays = "text" if column.type is Plain.STRING else "list"
    return choose_form(declared(column), arrays=arrays, unfit=unfit)


def refused(stream: str, what: str, back: str) -> StreamRefused:
    """A slice that cannot be finished as things are."""
    return StreamRefused(
        f"a slice is open that was planned otherwise: {what}",
        next_step=f"{back}, so that the slice can be finished",
        stream=stream,
    )


def _refused(slice_: Slice, content: TableContent, name: str, type_: str, now: Column | None) -> StreamRefused:
    let_go = f"or let go of it by `penstock state recover FILE --stream {slice_.stream}`; the next one is planned anew"
    if now is None:
        what, back = f"it reads {name} of {content.table}, which is gone", "bring the column back"
    else:
        what, back = f"{name} of {content.table} was {type_} and is {now.type} now", "change the column back"
    error = refused(slice_.stream, what, back)
    error.next_step += f"; {let_go}"
    return error
