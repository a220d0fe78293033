"""State tables: which streams can have one, how their documents are staged, and how they are committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.ops import FEED_COLUMNS, Layout
from penstock.core.slices import Kind, Receipt, Slice
from penstock.core.types import List, Plain, Type
from penstock.lake.folding.values import is_supported
from penstock.ports import Probe, Spark
from penstock.sinks.lake.options import StreamOptions

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.folding.committer import Folding
    from penstock.lake.folding.staging import StagingWriter
    from penstock.lake.landing import Landing, StagedSlice

#: a problem of a stream, and what to do about it
Problem = tuple[str, str]


def layout_of(content: Content) -> Layout:
    """The entities of a stream of ops."""
    return Layout.of(content.entities or {})


def list_columns(layout: Layout) -> dict[str, Type]:
    """The columns of a table with one row for each entity, with their types."""
    multi = {column.name: List(column.type) for column in layout.multi}
    return {**{column.name: column.type for column in (*layout.key, *layout.scalars)}, **multi}


def find_problems(content: Content, options: StreamOptions, kind: Kind) -> Iterator[Problem]:
    """What keeps a stream from having a state table, whatever table it is."""
    if content.entities is None:
        yield (
            "`mode: state` applies documents of ops, and rows of this stream are not documents of ops",
            "use a source that delivers them, such as `outbox`; or set `mode: append` or `mode: merge`",
        )
        return
    if not {column.name for column in FEED_COLUMNS} <= set(content.names):
        yield (
            "`mode: state` needs the columns id, at and document of the stream, and `shape` renames or drops them",
            "remove them from `shape`",
        )
    if kind is Kind.REFRESH:
        yield "a full refresh cannot be applied as ops", "use `mode: append`"
    yield from _option_problems(options)
    layout = layout_of(content)
    for column in (*layout.key, *layout.scalars, *layout.multi):
        if not is_supported(column.type):
            yield (
                f"field {column.name!r} is of type {column.described}, which a state table cannot hold",
                "convert it at the source, for instance to text",
            )
        if column.name.startswith("__side_"):
            yield f"field {column.name!r} has a name that is reserved by the lake", "rename it at the source"
    for column in layout.key:
        if column.type in (Plain.FLOAT32, Plain.FLOAT64, Plain.JSON):
            yield (
                f"the key column {column.name!r} is of type {column.described}, of which one value has several forms",
                "choose another key at the source",
            )


def _option_problems(options: StreamOptions) -> Iterator[Problem]:
    for name in ("key", "newer_than", "deleted_at", "into_existing", "replace_existing"):
        if getattr(options, name):
            yield f"`{name}` has no meaning with `mode: state`", "leave it out"
    if options.deletes != "hard":
        yield f"`deletes: {options.deletes}` has no meaning with `mode: state`", "leave it out"


def make_writer(table: Table, slice_: Slice, attempt: str, *, stem: str, probe: Probe) -> StagingWriter:
    """Stages documents beside the data files of the table, under names that no data file of a table has."""
    from penstock.lake.folding.staging import StagingWriter
    from penstock.lake.parquet import FileLayout

    return StagingWriter(slice_.pipeline, slice_.stream, FileLayout.of(table), stem, attempt, probe)


def make_folding(
    landing: Landing, slice_: Slice, receipts: Sequence[Receipt], table: Table, options: StreamOptions, spark: Spark
) -> Folding:
    """How a slice's documents are committed."""
    from penstock.lake.folding.committer import Folding
    from penstock.lake.folding.staging import read_receipts
    from penstock.lake.parquet import FileLayout

    layout = layout_of(Content.parse(slice_.content))
    key = tuple(column.name for column in layout.key)
    early_for = options.early_for
    return Folding(
        landing,
        key,
        spark,
        layout=layout,
        parts=read_receipts(receipts),
        files=FileLayout.of(table, key),
        early_for=None if early_for is None else int(early_for.total_seconds() * 1_000_000),
    )


def collect(receipts: Sequence[Receipt]) -> StagedSlice:
    """The staged documents as a slice; its rows become data files only when they are folded."""
    from penstock.lake.landing import StagedSlice

    def restamp(*_: object) -> list[object]:
        raise AssertionError("a fold numbers its rows itself")

    return StagedSlice(
        files=(),
        rows=sum(receipt.rows for receipt in receipts),
        bytes=sum(receipt.bytes for receipt in receipts),
        start=1,
        last=0,
        restamp=restamp,  # type: ignore[arg-type]  # never called
        slow=True,
    )
