"""The quarantine: rows that a table rejected, each with the reason, stored in the transaction of its slice.

A replay merges them again as they came. Rows that are written leave the quarantine in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.core.slices import Slice
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import escape_percents, join_identifiers, load_statement, to_text
from penstock.links.postgres.write_connection import Connection
from penstock.ports import Quarantined
from penstock.sinks.postgres.bad_rows import BadRow, BadRowSearch
from penstock.sinks.postgres.columns import CHANGE, map_columns, missing_columns
from penstock.sinks.postgres.ledger import MISSING_STATES
from penstock.sinks.postgres.merge import Merge
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.staging import MAX_PART_ROWS, PLACE, TEMPORARY, Staging
from penstock.sinks.postgres.target import Target, describe

#: rows of one slice that are quarantined; more bad rows point to a mistake in the table or the stream
MAX_SLICE_ROWS = 1000
#: what `columns` is for an op of mode `state`: it is no row that could be merged
OPS = '"ops"'
#: why a replayed row stays whose key is in the table
KEY_EXISTS = "the table has a row of this key, and without `newer_than` nothing says which is newer"


class Quarantine:
    """The quarantine of one pipeline, in one schema."""

    def __init__(self, schema: str, pipeline: str) -> None:
        self.schema = schema
        self.pipeline = pipeline
        self.table = sql.Identifier(schema, "quarantine")

    def add(
        self,
        connection: Connection,
        staging: Staging,
        columns: Sequence[tuple[str, str]],
        bad: Sequence[BadRow],
        slice_: Slice,
        config: StreamConfig,
    ) -> None:
        """Add rows of a slice, as they were staged."""
        members = sql.SQL(", ").join(sql.Identifier("x", name) for name, _ in columns)
        query = load_statement(__package__, "quarantine_rows").format(
            schema=sql.Identifier(self.schema),
            staging=staging.sql,
            place=sql.Identifier(PLACE),
            members=escape_percents(members),
        )
        values = {
            "pipeline": self.pipeline,
            "stream": slice_.stream,
            "number": slice_.number,
            "target": to_text(config.table.sql),
            "names": list(config.shown_key),
            "columns": json.dumps(columns),
            **_lists(bad),
        }
        connection.execute(query, values)

    def list_rows(self, connection: Connection, streams: Sequence[str], *, limit: int) -> list[Quarantined]:
        """The oldest rows of some streams, or of all streams if none is named."""
        query = sql.SQL(
            "SELECT id, stream, number, key::text, code, reason, at FROM {} WHERE {} ORDER BY id LIMIT {}"
        ).format(self.table, self._select(streams), sql.Literal(limit))
        return [Quarantined(*row) for row in self.query(connection, query)]

    def count(self, connection: Connection, streams: Sequence[str]) -> dict[str, int]:
        """The number of rows of each stream."""
        query = sql.SQL("SELECT stream, count(*) FROM {} WHERE {} GROUP BY stream ORDER BY stream").format(
            self.table, self._select(streams)
        )
        return dict(self.query(connection, query))

    def drop(self, connection: Connection, streams: Sequence[str], ids: Sequence[int] = ()) -> int:
        """Delete the rows of some streams; with ids, only these."""
        query = sql.SQL("DELETE FROM {} WHERE {}").format(self.table, self._select(streams, ids))
        return connection.execute(query).rowcount

    # ------------------------------------------------------------ replay

    def replay(self, connection: Connection, config: StreamConfig, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        """Merge rows of a stream again, and count those that stay as quarantined.

        `overwrite`: replace rows of the same key even if nothing says which is newer.
        """
        # Locked, so that no other process replays the same rows; rows that came with the same columns go together.
        query = sql.SQL(
            "WITH taken AS (SELECT id, columns::text AS columns FROM {} WHERE {} ORDER BY id FOR UPDATE) "
            "SELECT columns, array_agg(id ORDER BY id) FROM taken GROUP BY columns ORDER BY min(id)"
        ).format(self.table, self._select([config.info.name], ids))
        outcome = Outcome()
        for number, (columns, group) in enumerate(connection.execute(query).fetchall()):
            if config.is_state or columns == OPS:
                raise StreamRefused(
                    "quarantined ops cannot be replayed: later ops may have written the same fields, and an older "
                    "value would replace a newer one",
                    next_step="correct the cause, then read the tables again with `penstock loads start FILE --stream "
                    f"{config.info.name}`, of the pipeline that reads the outbox; then: penstock quarantine drop FILE",
                )
            pairs = [(name, type_) for name, type_ in json.loads(columns)]
            target = _describe_complete(connection, config, pairs)
            merge = Merge(
                connection=connection,
                config=config,
                staging=self._stage(connection, config, number, pairs, group),
                target=target,
                columns=map_columns(pairs, target),
                parts=[(0, 0)],
                is_alone=True,
                has_changes=CHANGE in dict(pairs),
            )
            outcome += self._replay_group(merge, group, overwrite=overwrite)
        return outcome

    def _replay_group(self, merge: Merge, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        connection, config = merge.connection, merge.config
        staying: list[BadRow] = []
        if config.key and not config.newer_than and not overwrite:
            # An older version could replace a newer one.
            staying = [BadRow(place, "", "", KEY_EXISTS) for place in merge.find_existing()]
        merge.staging.remove_rows(connection, [bad.place for bad in staying])
        with connection.transaction(force_rollback=True):
            staying += BadRowSearch(merge, limit=len(ids)).run(refresh=False)
        merge.staging.remove_rows(connection, [bad.place for bad in staying])
        outcome = merge.fill(len(ids) - len(staying), refresh=False)
        if replayed := {*ids} - {bad.place for bad in staying}:
            self.drop(connection, [config.info.name], sorted(replayed))
        update = sql.SQL(
            "UPDATE {} q SET code = b.code, reason = b.reason "
            "FROM unnest(%(places)s::bigint[], %(codes)s::text[], %(reasons)s::text[]) b (id, code, reason) "
            "WHERE q.id = b.id"
        ).format(self.table)
        connection.execute(update, _lists(staying))
        return outcome + Outcome(quarantined=len(staying))

    def _stage(
        self,
        connection: Connection,
        config: StreamConfig,
        number: int,
        columns: Sequence[tuple[str, str]],
        ids: Sequence[int],
    ) -> Staging:
        """Stage rows in a temporary table; the place of each is its id in the quarantine."""
        if max(ids) >= MAX_PART_ROWS:
            raise OverflowError(f"ids of the quarantine end at {MAX_PART_ROWS}")
        staging = Staging.of(TEMPORARY, self.pipeline, config.info.name, number, "replay")
        staging.create(connection, columns)
        names = [name for name, _ in columns]
        query = sql.SQL(
            "INSERT INTO {staging} ({names}, {place}) SELECT {members}, q.id FROM {quarantine} q "
            "CROSS JOIN LATERAL json_populate_record(NULL::{staging}, q.row) r WHERE q.id = ANY (%s)"
        ).format(
            staging=staging.sql,
            names=escape_percents(join_identifiers(names)),
            place=sql.Identifier(PLACE),
            members=escape_percents(sql.SQL(", ").join(sql.Identifier("r", name) for name in names)),
            quarantine=self.table,
        )
        connection.execute(query, [list(ids)])
        return staging

    def _select(self, streams: Sequence[str], ids: Sequence[int] = ()) -> sql.Composed:
        parts = [sql.SQL("pipeline = {}").format(sql.Literal(self.pipeline))]
        if streams:
            parts.append(sql.SQL("stream = ANY ({})").format(sql.Literal(list(streams))))
        if ids:
            parts.append(sql.SQL("id = ANY ({}::bigint[])").format(sql.Literal(list(ids))))
        return sql.SQL(" AND ").join(parts)

    def query(self, connection: Connection, query: sql.Composed) -> list[tuple[Any, ...]]:
        """Without a table there are no rows."""
        try:
            return connection.execute(query).fetchall()
        except psycopg.Error as error:
            if error.sqlstate in MISSING_STATES:
                return []
            raise


def _describe_complete(connection: Connection, config: StreamConfig, columns: Sequence[tuple[str, str]]) -> Target:
    """The table; StreamRefused if it does not exist, or lacks a column."""
    target = describe(connection, config.table)
    missing = missing_columns(columns, target)
    if target is None or missing:
        what = f"{config.table} has no column {missing[0]}" if target else f"there is no table {config.table}"
        raise StreamRefused(
            f"{what}, which rows in quarantine need",
            next_step="create it, or drop the rows: penstock quarantine drop FILE",
        )
    return target


def _lists(bad: Sequence[BadRow]) -> dict[str, list[Any]]:
    return {
        "places": [row.place for row in bad],
        "codes": [row.code for row in bad],
        "reasons": [row.reason for row in bad],
    }
