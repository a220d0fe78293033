"""Makes the schema of a lake table for a stream, and widens it without losing a value.

Columns of a table that penstock makes: the stream's own in their order, then `_tombstone` (keyed tables, and streams
that carry deletes), then `_ingest_seq`, required. Key columns of a keyed table are required and are its identifier
fields; every other column is optional.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField

from penstock.core.types import Type
from penstock.errors import StreamFailed, StreamRefused
from penstock.lake.iceberg_types import NoForm, describe_type, fits, iceberg_type, widens
from penstock.lake.names import DELETED, INTERNAL, SEQ
from penstock.lake.tables import LostRace, retry_commit

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: names that a stream's columns cannot have: ours, the one in which batches carry changes, and Iceberg's own in Spark
RESERVED = (*INTERNAL, "_change", "_file", "_pos", "_deleted", "_spec_id", "_partition")


def make_iceberg_schema(
    columns: Sequence[tuple[str, Type]], *, key: Sequence[str] = (), deletes: bool = False
) -> Schema:
    """The table for a stream's columns, with fresh ids. `key`: it is keyed; `deletes`: the stream carries them."""
    names = [name for name, _ in columns]
    _refuse_names(names)
    for name in key:
        if name not in names:
            raise StreamRefused(
                f"the key column {name!r} is not among the columns of the stream",
                next_step=f"choose the key among: {', '.join(names)}",
            )
    ids = itertools.count(1)
    fields = [NestedField(next(ids), name, _form(name, type_, ids), required=name in key) for name, type_ in columns]
    identifiers = [field.field_id for field in fields if field.name in key]
    if key or deletes:
        fields.append(NestedField(next(ids), DELETED, BooleanType(), required=False))
    fields.append(NestedField(next(ids), SEQ, LongType(), required=True))
    # The ids that a catalog gives to a new table, so that a spec made from this schema is right for it.
    return assign_fresh_schema_ids(Schema(*fields, identifier_field_ids=identifiers))


def _refuse_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in RESERVED:
            raise StreamRefused(
                f"column {name!r} has a name that is reserved by the lake",
                next_step="rename it at the source, or leave it out with `columns`",
            )
        if name.lower() in seen:
            raise StreamRefused(
                f"columns {seen[name.lower()]!r} and {name!r} differ in upper and lower case only, "
                "and Spark takes them for one",
                next_step="rename one of them at the source, or leave it out with `columns`",
            )
        seen[name.lower()] = name


def _form(name: str, type_: Type, ids: itertools.count[int]) -> IcebergType:
    try:
        return iceberg_type(type_, ids)
    except NoForm as none:
        raise StreamRefused(f"column {name!r}: {none}", next_step=none.choice) from none


@dataclass(frozen=True, slots=True)
class Changes:
    """How a table must grow before a stream's rows fit."""

    #: new columns, all optional: rows that are there have no value for them
    added: tuple[tuple[str, IcebergType], ...] = ()
    #: columns with their wider type
    widened: tuple[tuple[str, IcebergType], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def find_changes(table: Schema, wanted: Schema) -> Changes:
    """Find what a table lacks for a stream; StreamRefused where no change without loss leads there.

    A column that the stream no longer has stays, and is NULL in new rows.
    """
    there = {field.name: field for field in table.fields}
    lower = {name.lower(): name for name in there}
    added, widened = [], []
    for field in wanted.fields:
        name, now = field.name, there.get(field.name)
        if now is None:
            if twin := lower.get(name.lower()):
                raise StreamRefused(
                    f"the table has a column {twin!r}, the stream has {name!r}: Spark takes both for one",
                    next_step=f"rename the stream's column to {twin!r} at the source, or land in another table with "
                    "`into`",
                )
            added.append((name, field.field_type))
        elif widens(now.field_type, field.field_type):
            widened.append((name, field.field_type))
        elif not fits(field.field_type, now.field_type):
            raise StreamRefused(
                f"column {name!r} is {describe_type(now.field_type)} in the table and "
                f"{describe_type(field.field_type)} in the stream; a value could be lost between them",
                next_step="cast the column (`shape: {cast: …}`) or give it another name (`shape: {rename: …}`), land "
                "in another table with `into`, or drop the column from the table once its values are not needed",
            )
    names = {field.name for field in wanted.fields}
    for field in table.fields:
        if field.required and field.name not in names and field.name not in INTERNAL:
            raise StreamRefused(
                f"column {field.name!r} of the table is required ({describe_type(field.field_type)}), "
                "and the stream has no such column",
                next_step="ship the column, or make it optional: ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
            )
    return Changes(tuple(added), tuple(widened))


def evolve(table: Table, wanted: Schema) -> bool:
    """Widen a table in a commit of its own, so that a stream's rows fit; returns whether anything changed.

    Another writer may widen it at the same time: after a lost race the schemas are compared again.
    """

    def attempt() -> bool:
        changes = find_changes(table.schema(), wanted)
        if not changes:
            return False
        try:
            with table.update_schema() as update:
                for name, type_ in changes.added:
                    update.add_column((name,), type_, required=False)
                for name, type_ in changes.widened:
                    update.update_column((name,), field_type=type_)
        except CommitFailedException as error:
            table.refresh()
            raise LostRace(str(error)) from error
        return True

    def give_up(why: str) -> StreamFailed:
        return StreamFailed(f"cannot change the schema of {'.'.join(table.name())}: {why}", next_step="run again")

    return retry_commit(attempt, give_up)
