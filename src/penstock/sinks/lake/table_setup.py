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
from penstock.lake.lake import Lake
from penstock.lake.parquet import FileLayout
from penstock.lake.partitions import make_partition_spec, make_sort_order
from penstock.lake.schema import evolve, find_changes, make_iceberg_schema
from penstock.lake.tables import create_table, extract_state, load_table
from penstock.sinks.lake.checks import Admission
from penstock.sinks.lake.options import Options, StreamOptions

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def make_schema(content: Content, options: StreamOptions, key: Sequence[str]) -> Schema:
    """The table that a stream would have if it were made now.

    Columns that it no longer has are not asked for: the table's own are NULL then, and one that was dropped there too
    does not come back.
    """
    keyed = key if options.mode == "merge" else ()
    gone = absent(content)
    columns = [(column.name, column.type) for column in content.columns if column.name not in gone]
    return make_iceberg_schema(columns, key=keyed, deletes=content.changes)


def check_schema(lake: Lake, table: str, content: Content, options: StreamOptions, key: Sequence[str]) -> None:
    """StreamRefused if the stream does not fit its table, or no table can be made for it."""
    schema = make_schema(content, options, key)
    loaded = load_table(lake, table)
    if loaded is None:
        make_partition_spec(options.partition_by, schema)
        make_sort_order(options.sort_by, schema)
    else:
        find_changes(loaded.schema(), schema)


def prepare_table(
    lake: Lake,
    table: str,
    slice_: Slice,
    options: StreamOptions,
    key: Sequence[str],
    admission: Admission,
    say: Callable[[str], None],
) -> Table:
    """The table, such that the slice's rows fit. StreamRefused if a stream's first slice must not go into it."""
    content = Content.parse(slice_.content)
    schema = make_schema(content, options, key)
    loaded = load_table(lake, table)
    if loaded is not None and not slice_.previous:
        admission.check(extract_state(loaded))
    if loaded is None:
        properties = {names.HEAD: "0", names.MODE: options.mode, names.KEY: canonical(list(key))}
        create_table(
            lake,
            table,
            schema,
            spec=make_partition_spec(options.partition_by, schema),
            order=make_sort_order(options.sort_by, schema),
            properties=properties
            if options.mode == "merge"
            else {k: v for k, v in properties.items() if k != names.KEY},
        )
    elif not extract_state(loaded).ours:
        for line in adopt(lake, table, mode=options.mode, key=key):
            say(f"{line}; its rows get their numbers, and its files are rewritten for it, when it is first read")
    loaded = load_table(lake, table)
    if loaded is not None and evolve(loaded, schema):
        loaded = load_table(lake, table)
    if loaded is None:
        raise StreamFailed(
            f"the table {lake.namespace}.{table} is gone again as soon as it was made",
            next_step="see who drops it, then run again",
        )
    return loaded


def make_layout(table: Table, options: Options, key: Sequence[str]) -> FileLayout:
    """How rows of the table are written, for workers."""
    return replace(FileLayout.of(table, tuple(key)), target=options.target_file_size)
