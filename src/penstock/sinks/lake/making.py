"""Tables for streams: made from a slice's content, adopted, or widened until its rows fit without loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.documents import canonical
from penstock.core.drift import absent
from penstock.core.slices import Slice
from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.adoption import adopt
from penstock.lake.parquet import Shape
from penstock.lake.partitions import partition_spec, sort_order
from penstock.lake.place import Place
from penstock.lake.schema import evolution, evolve, iceberg_schema
from penstock.lake.tables import create, load, standing_of
from penstock.sinks.lake.admission import Admission
from penstock.sinks.lake.options import Options, StreamOptions

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def wanted(content: Content, options: StreamOptions, key: Sequence[str]) -> Schema:
    """The table that a stream would have if it were made now.

    Columns that it no longer has are not asked for: the table's own are NULL then, and one that was dropped there too
    does not come back.
    """
    keyed = key if options.mode == "merge" else ()
    gone = absent(content)
    columns = [(column.name, column.type) for column in content.columns if column.name not in gone]
    return iceberg_schema(columns, key=keyed, deletes=content.changes)


def check_schema(place: Place, table: str, content: Content, options: StreamOptions, key: Sequence[str]) -> None:
    """StreamRefused if the stream does not fit its table, or no table can be made for it."""
    schema = wanted(content, options, key)
    loaded = load(place, table)
    if loaded is None:
        partition_spec(options.partition_by, schema)
        sort_order(options.sort_by, schema)
    else:
        evolution(loaded.schema(), schema)


def made(
    place: Place,
    table: str,
    slice_: Slice,
    options: StreamOptions,
    key: Sequence[str],
    admission: Admission,
    say: Callable[[str], None],
) -> Table:
    """The table, such that the slice's rows fit. StreamRefused if a stream's first slice must not go into it."""
    content = Content.parse(slice_.content)
    schema = wanted(content, options, key)
    loaded = load(place, table)
    if loaded is not None and not slice_.previous:
        admission.check(standing_of(loaded))
    if loaded is None:
        properties = {names.HEAD: "0", names.MODE: options.mode, names.KEY: canonical(list(key))}
        create(
            place,
            table,
            schema,
            spec=partition_spec(options.partition_by, schema),
            order=sort_order(options.sort_by, schema),
            properties=properties
            if options.mode == "merge"
            else {k: v for k, v in properties.items() if k != names.KEY},
        )
    elif not standing_of(loaded).ours:
        for line in adopt(place, table, mode=options.mode, key=key):
            say(f"{line}; its rows get their numbers, and its files are rewritten for it, when it is first read")
    loaded = load(place, table)
    if loaded is not None and evolve(loaded, schema):
        loaded = load(place, table)
    if loaded is None:
        raise StreamFailed(
            f"the table {place.namespace}.{table} is gone again as soon as it was made",
            next_step="see who drops it, then run again",
        )
    return loaded


def shape_of(table: Table, options: Options, key: Sequence[str]) -> Shape:
    """How rows of the table are written, for workers."""
    return replace(Shape.of(table, tuple(key)), target=options.target_file_size)
