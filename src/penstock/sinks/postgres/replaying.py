"""Rows of the quarantine tried again, as they came: those that go in now leave it, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName, escape_percents, join_identifiers
from penstock.sinks.postgres.filling import Filling
from penstock.sinks.postgres.fitting import CHANGE, fitted, lacking
from penstock.sinks.postgres.merging import Merge, Rules
from penstock.sinks.postgres.quarantine import Quarantine
from penstock.sinks.postgres.sifting import Bad, Sieve, left_out
from penstock.sinks.postgres.staging import MOST_ROWS, PLACE, Staging
from penstock.sinks.postgres.target import Target, describe
from penstock.sinks.postgres.triggers import still

#: why a row stays whose key is in the table, where nothing says which of the two is newer
THERE = "the table has a row of this key, and without `newer_than` nothing says which is newer"


@dataclass(frozen=True)
class Replaying:
    """One stream's quarantine, back into its table."""

    connection: psycopg.Connection[Any]
    quarantine: Quarantine
    pipeline: str
    stream: str
    table: TableName
    rules: Rules
    #: the table's own triggers run for these rows
    triggers: bool
    #: the columns that name a row in words
    names: Sequence[str]
    #: write over rows of the same key, even if nothing says which is newer
    overwrite: bool

    def replay(self, ids: Sequence[int]) -> Outcome:
        """What became of the rows; those that stay are counted as quarantined."""
        found = Outcome()
        for number, (columns, of_these) in enumerate(self.quarantine.taken(self.connection, self.stream, ids)):
            found += self._group(number, [(name, type_) for name, type_ in json.loads(columns)], of_these)
        return found

    def _group(self, number: int, columns: Sequence[tuple[str, str]], ids: Sequence[int]) -> Outcome:
        """Rows that came with the same columns."""
        target = self._target(columns)
        merge = Merge(
            staging=self._aside(number, columns, ids),
            target=target,
            columns=fitted(columns, target),
            rules=self.rules,
            named=[(0, 0)],
            alone=True,
            changes=any(name == CHANGE for name, _ in columns),
        )
        filling = Filling(self.connection, target)
        stay = self._in_doubt(merge)
        left_out(self.connection, merge.staging, [bad.place for bad in stay])
        with still(self.connection, target, on=self.triggers):
            with self.connection.transaction(force_rollback=True):
                stay += Sieve(filling, merge, self.names, most=len(ids)).sift(anew=False)
            left_out(self.connection, merge.staging, [bad.place for bad in stay])
            became = filling.fill(merge, len(ids) - len(stay), anew=False)
        staying = {bad.place for bad in stay}
        self.quarantine.remove(self.connection, [id_ for id_ in ids if id_ not in staying])
        self.quarantine.told(self.connection, stay)
        return became + Outcome(quarantined=len(stay))

    def _target(self, columns: Sequence[tuple[str, str]]) -> Target:
        target = describe(self.connection, self.table)
        missing = lacking(columns, target)
        if target is None or missing:
            what = f"{self.table} has no column {missing[0]}" if target else f"there is no table {self.table}"
            raise StreamRefused(
                f"{what}, which rows in quarantine need",
                next_step="make it, or drop the rows: penstock quarantine drop FILE",
                pipeline=self.pipeline,
                stream=self.stream,
            )
        return target

    def _aside(self, number: int, columns: Sequence[tuple[str, str]], ids: Sequence[int]) -> Staging:
        """The rows in a table of this transaction; the place of each is its number in the quarantine."""
        if max(ids) >= MOST_ROWS:
            raise OverflowError(f"numbers of the quarantine end at {MOST_ROWS}")
        staging = Staging.of("pg_temp", self.pipeline, self.stream, number, "replay")
        parts = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns]
        parts.append(sql.SQL("{} bigint").format(sql.Identifier(PLACE)))
        self.connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(
                sql.Identifier(staging.name), sql.SQL(", ").join(parts)
            )
        )
        named = [name for name, _ in columns]
        query = sql.SQL(
            "INSERT INTO {aside} ({names}, {place}) SELECT {members}, q.id FROM {quarantine} q "
            "CROSS JOIN LATERAL json_populate_record(NULL::{aside}, q.row) r WHERE q.id = ANY (%s)"
        ).format(
            aside=staging.sql,
            names=escape_percents(join_identifiers(named)),
            place=sql.Identifier(PLACE),
            members=escape_percents(sql.SQL(", ").join(sql.Identifier("r", name) for name in named)),
            quarantine=self.quarantine.table,
        )
        self.connection.execute(query, [list(ids)])
        return staging

    def _in_doubt(self, merge: Merge) -> list[Bad]:
        """Rows whose key is there already, where an older version could take the place of a newer one."""
        if not self.rules.key or self.rules.newer_than or self.overwrite:
            return []
        found = merge.there(self.connection)
        return [Bad(place, "", "", THERE) for place in found]
