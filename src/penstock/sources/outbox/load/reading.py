"""Reads ranges of tables inside a worker, as documents. A range is read with a snapshot of its own.

Nothing that a server shows may be delivered while a crash could still undo it: a part ends only after its rows are on
the server's disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg import sql

from penstock.core.documents import Document, canonical, parse
from penstock.core.ops import VERSION
from penstock.core.ranges import Range, tiles
from penstock.core.retry import Backoff
from penstock.core.slices import Part, Slice
from penstock.errors import StreamFailed
from penstock.links.pause import pause
from penstock.links.postgres.key_walk import range_condition
from penstock.links.postgres.literals import TableName, to_text
from penstock.links.postgres.server_checks import log_bytes
from penstock.sources.outbox.load.dump_files import read_piece
from penstock.sources.outbox.load.planning import ROW
from penstock.sources.outbox.reader import DocumentReader, convert

if TYPE_CHECKING:
    import pyarrow as pa

#: a temporary table for rows of a dump
_COPY = "penstock_dump"
#: ids of one slice; those of loads are negative
SLICE_IDS = 1 << 32
FIRST_ID = -(1 << 53)
#: between two looks at how far the server's log is on disk
_FLUSH_BACKOFF = Backoff(first_seconds=0.01, longest_seconds=0.1, jitter=0.0)
_LSN = sql.SQL("SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn()::text END").format()
_FLUSHED = sql.SQL("SELECT pg_current_wal_flush_lsn()::text").format()
_DELAY = sql.SQL("SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'").format()


def load_of(slice_: Slice) -> Mapping[str, Any] | None:
    """What a slice loads; None: it is a window of the outbox."""
    plan: Any = parse(slice_.plan)
    found: Mapping[str, Any] | None = plan.get("load")
    return found


def load_parts(slice_: Slice, load: Mapping[str, Any]) -> list[Part]:
    """The parts of a load slice: what is cleared comes first."""
    pieces: list[Document] = [{"clears": load["clears"], "at": load["at"]}] if load["clears"] else []
    for number in range(len(load["tables"])):
        own = [each for each in load["pieces"] if each["table"] == number]
        if own and "piece" in own[0]:
            pieces += own
            continue
        ranges = [Range(_key(each["after"]), _key(each["upto"])) for each in own]
        if not ranges or not tiles(ranges, Range(ranges[0].after, ranges[-1].upto)):
            raise StreamFailed(
                f"the parts of slice {slice_.number} do not cover it",
                next_step="report this defect",
                stream=slice_.stream,
            )
        pieces += own
    ids = SLICE_IDS // max(1, len(pieces))
    first = FIRST_ID + load["number"] * SLICE_IDS
    return [
        Part(index, canonical({**piece, "first": first + index * ids, "ids": ids}))
        for index, piece in enumerate(pieces)
    ]


def _key(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


@dataclass(frozen=True, kw_only=True)
class LoadReader(DocumentReader):
    """Reads ranges of tables."""

    #: as the slice's plan has them
    tables: tuple[Mapping[str, Any], ...]

    #: names of functions are found as in the triggers; hidden rows are an error, not left out
    more: ClassVar[Mapping[str, str]] = {"search_path": "pg_catalog, pg_temp", "row_security": "off"}

    def _batches(self, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        terms: Any = parse(part.terms)
        if "clears" in terms:
            yield _clear_batch(schema, terms)
            return
        table = self.tables[terms["table"]]
        name, given = str(table["table"]), 0
        with self._cursor(name, writes="piece" in terms) as cursor:
            if "piece" in terms:
                select = self._copy_piece(table, terms["piece"], cursor)
            else:
                self._lock(table, cursor)
                select = select_statement(table, terms)
            for batch in self._fetch(cursor, select, name):
                if given + batch.num_rows > terms["ids"]:
                    raise self._too_many(name, terms["ids"])
                yield convert(_with_ids(batch, terms["first"] + given), schema)
                given += batch.num_rows
            if "piece" in terms:
                # A pooler keeps the session, and temporary tables with it.
                cursor.executescript(f"DROP TABLE pg_temp.{_COPY}")
            else:
                _wait_until_durable(cursor)

    def _copy_piece(self, table: Mapping[str, Any], piece: Mapping[str, Any], cursor: Any) -> sql.Composed:
        """Copy rows of a dump into a temporary table; the statement that reads them as rows of the table.

        The server converts their text, and composes their documents as those of the table itself.
        """
        with read_piece(piece, [name for name, _ in table["read"]], self.stream) as rows:
            cursor.adbc_ingest(_COPY, rows, mode="create", temporary=True)
        columns = [
            sql.SQL("c.{}::{} AS {}").format(sql.Identifier(name), sql.SQL(type_), sql.Identifier(name))
            for name, type_ in table["read"]
        ]
        return sql.SQL(
            "SELECT statement_timestamp() AS at, {} AS document FROM (SELECT {} FROM {} AS c) AS {} WHERE {}"
        ).format(
            sql.SQL(table["document"]),
            sql.SQL(", ").join(columns),
            sql.Identifier("pg_temp", _COPY),
            sql.SQL(ROW),
            sql.SQL(table["condition"]),
        )

    def _lock(self, table: Mapping[str, Any], cursor: Any) -> None:
        """Lock the table before its rows are read with a later snapshot, and check that it is the one of the plan.

        A snapshot that is older than an ALTER TABLE that rewrites would see none of the rows.
        """
        name = TableName.read(table["table"], "")
        cursor.executescript(to_text(sql.SQL("SELECT FROM {} LIMIT 0").format(name.sql)))
        cursor.execute(to_text(sql.SQL("SELECT to_regclass({})::oid::text").format(sql.Literal(to_text(name.sql)))))
        if cursor.fetchone()[0] != table["oid"]:
            recover = f"`penstock state recover FILE --stream {self.stream}`"
            raise StreamFailed(
                f"{name} was dropped and created again, or renamed, while it was loaded",
                next_step=f"drop the open slice with {recover}, run `penstock triggers apply FILE`, and run again: the "
                "table is loaded from its beginning",
                pipeline=self.pipeline,
                stream=self.stream,
            )

    def _too_many(self, table: str, most: int) -> StreamFailed:
        return StreamFailed(
            f"a range of {table} has more than {most:,} rows, for which there are no ids",
            next_step="create an index on the columns that name the entity, so that smaller ranges can be read",
            pipeline=self.pipeline,
            stream=self.stream,
        )


def select_statement(table: Mapping[str, Any], terms: Mapping[str, Any]) -> sql.Composed:
    """The statement of a part; literals only, because bound parameters switch COPY off."""
    columns = [sql.SQL(ROW + ".") + sql.Identifier(name) for name in table["columns"]]
    range_ = Range(_key(terms["after"]), _key(terms["upto"]))
    return sql.SQL("SELECT statement_timestamp() AS at, {} AS document FROM {} AS {} WHERE {} AND ({})").format(
        sql.SQL(table["document"]),
        TableName.read(table["table"], "").sql,
        sql.SQL(ROW),
        range_condition(columns, table["types"], range_),
        sql.SQL(table["condition"]),
    )


def _with_ids(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    ids = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([ids, *batch.columns], names=["id", "at", "document"])


def _clear_batch(schema: pa.Schema, terms: Mapping[str, Any]) -> pa.RecordBatch:
    import pyarrow as pa

    documents = [json.dumps(_clear_document(each)) for each in terms["clears"]]
    count = len(documents)
    columns = [
        pa.array(range(terms["first"], terms["first"] + count), pa.int64()),
        pa.array([terms["at"]] * count, pa.timestamp("us", "UTC")),
        pa.array(documents, pa.string()),
    ]
    return convert(pa.RecordBatch.from_arrays(columns, names=["id", "at", "document"]), schema)


def _clear_document(clear: Mapping[str, Any]) -> dict[str, Any]:
    fields = clear["fields"]
    ops = [{"op": "clear"}] if fields is None else [{"op": "clear", "field": name} for name in fields]
    return {"v": VERSION, "table": clear["table"], "ops": ops}


def _wait_until_durable(cursor: Any) -> None:
    """Wait until the server has all that was read on its disk; see `Server.wait_until_durable`."""

    def ask(query: sql.Composed) -> Any:
        cursor.execute(to_text(query))
        return cursor.fetchone()[0]

    written = ask(_LSN)
    if written is None or log_bytes(ask(_FLUSHED)) >= log_bytes(written):
        return
    deadline, looks = time.monotonic() + (3 * int(ask(_DELAY)) + 100) / 1000, 0
    while (left := deadline - time.monotonic()) > 0 and log_bytes(ask(_FLUSHED)) < log_bytes(written):
        looks += 1
        pause(_FLUSH_BACKOFF, looks, at_most=left)
