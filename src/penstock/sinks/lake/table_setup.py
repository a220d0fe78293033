"""Creates, adopts or widens the table of a stream, until the rows of a slice fit without loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.documents import canonical
from penstock.core.drift import absent
from penstock.core.types import Plain
from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.adoption import adopt
from penstock.lake.parquet import FileLayout
from penstock.lake.partitions import make_partition_spec, make_sort_order
from penstock.lake.schema import evolve, find_changes, make_iceberg_schema
from penstock.lake.tables import create_table, extract_state, load_table
from penstock.sinks.lake.checks import Checks
from penstock.sinks.lake.options import Options, StreamOptions
from penstock.sinks.lake.state_tables import layout_of, list_columns

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


def make_schema(content: Content, options: StreamOptions, key: Sequence[str]) -> Schema:
    """Make the schema that a new table for a stream would have.

    Columns that the stream no longer has are left out: the table's own are NULL then, and one that was dropped there
    too does not come back.
    """
    if options.mode == "state":
        return make_iceberg_schema([*list_columns(layout_of(content)).items()], key=key)
    gone = absent(content)
    columns = [(column.name, column.type) for column in content.columns if column.name not in gone]
    if options.marker:
        columns.append((options.marker, Plain.TIMESTAMPTZ))
    return make_iceberg_schema(columns, key=key if options.mode == "merge" else (), deletes=content.changes)


def check_schema(checks: Checks) -> None:
    """StreamRefused if the stream does not fit its table, or no table can be created for it."""
    options = checks.options
    schema = make_schema(checks.content, options, checks.key)
    loaded = load_table(checks.lake, checks.table)
    if loaded is None:
        make_partition_spec(options.partition_by, schema)
        make_sort_order(options.sort_by, schema)
    else:
        find_changes(loaded.schema(), schema)


def prepare_table(checks: Checks, *, first: bool, say: Callable[[str], None]) -> Table:
    """Load the table, such that the content's rows fit. StreamRefused if the `first` slice must not go into it."""
    lake, table, options = checks.lake, checks.table, checks.options
    schema = make_schema(checks.content, options, checks.key)
    loaded = load_table(lake, table)
    if loaded is not None and first:
        checks.check_admission(extract_state(loaded))
    if loaded is None:
        properties = {names.HEAD: "0", names.MODE: options.mode}
        properties |= {names.KEY: canonical(list(checks.key))} if options.mode != "append" else {}
        spec, order = make_partition_spec(options.partition_by, schema), make_sort_order(options.sort_by, schema)
        create_table(lake, table, schema, spec=spec, order=order, properties=properties)
    elif not extract_state(loaded).ours:
        for line in adopt(lake, table, mode=options.mode, key=checks.key):
            say(f"{line}; its files are rewritten, with numbers for its rows, when it is first read")
    loaded = load_table(lake, table)
    if loaded is not None and evolve(loaded, schema):
        loaded = load_table(lake, table)
    if loaded is None:
        raise StreamFailed(
            f"the table {lake.namespace}.{table} disappeared as soon as it was created",
            next_step="find out who drops it, then run again",
        )
    return loaded


def make_layout(table: Table, options: Options, key: Sequence[str]) -> FileLayout:
    """How workers write rows of the table."""
    return replace(FileLayout.of(table, tuple(key)), target=options.target_file_size)
