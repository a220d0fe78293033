"""One slice into its table: what the receipts name is counted, merged and noted, in one transaction with the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.documents import parse
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, SliceRefused, StreamFailed
from penstock.links.postgres.literals import TableName, written
from penstock.ports import Probe
from penstock.sinks.postgres import creating
from penstock.sinks.postgres.fitting import CHANGE, Fitted, fitted, put_aside
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.merging import Merge, Rules
from penstock.sinks.postgres.staging import PLACE, Staging, drop
from penstock.sinks.postgres.target import Target, describe


@dataclass(frozen=True)
class Landing:
    """A slice on its way into its table."""

    pipeline: str
    ledger: Ledger
    slice: Slice
    attempt: str
    table: TableName
    rules: Rules
    create: bool
    staging: Staging
    receipts: Sequence[Receipt]
    probe: Probe

    # ------------------------------------------------------------ the table

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table, or add what it lacks: in a transaction of its own, so that locks stay short."""
        if not self.create:
            return
        if self._lacks(describe(connection, self.table)):
            # One after the other: two that make the same table at once would fail on the server's own catalog.
            self.ledger.alone(connection)
            target = describe(connection, self.table)
            lacks = self._lacks(target)
            if target is None:
                connection.execute(creating.create(self.table, lacks, self.rules.key))
            elif lacks:
                connection.execute(creating.add(self.table, lacks))

    def _lacks(self, target: Target | None) -> list[tuple[str, str]]:
        """Columns that the table has not, each with the type that it gets."""
        lacks = [(c["name"], creating.type_of(c)) for c in creating.missing(parse(self.slice.content), target)]
        mark = self.rules.deleted_at if self.rules.deletes == "soft" else None
        if mark and (target is None or target.column(mark) is None):
            lacks.append((mark, "timestamp with time zone"))
        return lacks

    # ------------------------------------------------------------ the transaction

    def land(self, connection: psycopg.Connection[Any]) -> Outcome:
        """Everything that becomes visible at once. CommitUnclear if the ledger is not at the slice before."""
        rows = sum(receipt.rows for receipt in self.receipts)
        try:
            with connection.transaction():
                moved = self.ledger.move(
                    connection,
                    self.slice,
                    target=written(self.table.sql),
                    rows=rows,
                    bytes_=sum(receipt.bytes for receipt in self.receipts),
                )
        except psycopg.errors.LockNotAvailable:
            who = self.ledger.busy(connection)
            raise self._unclear(f"another attempt is at it and has not ended{who}") from None
        if not moved:
            raise self._unclear("the ledger does not hold the slice before it")
        self.probe.at("postgres.moved", number=self.slice.number)
        outcome = Outcome()
        if self.slice.kind.moves:
            outcome = self._merged(connection, rows)
        if outcome.rows - outcome.deleted * self._beyond != rows:
            raise self._refused(f"{rows} rows came in, and {outcome.rows} are accounted for")
        self.ledger.note(connection, self.slice, self.attempt, outcome)
        drop(connection, self.staging.sql)
        return outcome

    @property
    def _beyond(self) -> int:
        """A refresh also deletes what did not come in."""
        return 1 if self.slice.kind is Kind.REFRESH else 0

    def _merged(self, connection: psycopg.Connection[Any], rows: int) -> Outcome:
        target = describe(connection, self.table)
        if target is None:
            raise StreamFailed(
                f"the table {self.table} is not there",
                next_step="create it, or set `create: true` on the stream, then run again",
                pipeline=self.pipeline,
                stream=self.slice.stream,
            )
        merge = self._merge(connection, target) if self.receipts else None
        if merge is not None:
            self._must_fit(connection, merge)
        if self.slice.kind is Kind.REFRESH:
            return self._replaced(connection, target, merge, rows)
        if merge is None or not rows:
            return Outcome()
        return merge.upsert(connection, rows) if self.rules.key else merge.append(connection)

    def _replaced(self, connection: psycopg.Connection[Any], target: Target, merge: Merge | None, rows: int) -> Outcome:
        """What came in takes the place of all that was there; readers see the one or the other."""
        if merge is None or not self.rules.key:
            gone = connection.execute(sql.SQL("DELETE FROM {}").format(target.name.sql)).rowcount
            added = merge.append(connection) if merge is not None and rows else Outcome()
            return added + Outcome(deleted=gone)
        # What is no longer there goes first: its unique values may have gone to another key.
        gone = merge.remove_others(connection)
        return merge.upsert(connection, rows) + Outcome(deleted=gone)

    # ------------------------------------------------------------ what was put aside

    def _merge(self, connection: psycopg.Connection[Any], target: Target) -> Merge:
        content = parse(self.slice.content)
        columns = [(name, type_) for name, type_ in put_aside(content) if type_]
        return Merge(
            staging=self.staging,
            target=target,
            columns=fitted(columns, target),
            rules=self.rules,
            named=[(int(receipt.attempt), receipt.part) for receipt in self.receipts],
            alone=self._counted(connection),
            changes=any(name == CHANGE for name, _ in columns),
        )

    def _counted(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether nothing else lies there than what the receipts name; SliceRefused if they do not add up."""
        query = sql.SQL("SELECT {0} >> 32, count(*) FROM {1} GROUP BY 1").format(
            sql.Identifier(PLACE), self.staging.sql
        )
        try:
            with connection.transaction():
                found: dict[int, int] = dict(connection.execute(query).fetchall())
        except psycopg.errors.UndefinedTable:
            # A slice that was committed elsewhere has swept it: the ledger will tell.
            raise self._unclear(f"{self.staging.name} is not there any more") from None
        for receipt in self.receipts:
            there = found.get(int(receipt.attempt), 0)
            if there != receipt.rows:
                raise self._refused(f"part {receipt.part} put {receipt.rows} rows aside, and {there} are there")
        return set(found) <= {int(receipt.attempt) for receipt in self.receipts}

    def _must_fit(self, connection: psycopg.Connection[Any], merge: Merge) -> None:
        """No value may be cut or rounded, and no key be missing."""
        limited = [(column, test) for column in merge.columns if (test := column.changed("x")) is not None]
        keys = [column for column in merge.columns if column.name in self.rules.key]
        tests = [test for _, test in limited]
        tests += [sql.SQL("(x.{} IS NULL)").format(sql.Identifier(column.name)) for column in keys]
        if not tests:
            return
        counts = (sql.SQL("count(*) FILTER (WHERE {})").format(test) for test in tests)
        query = sql.SQL("SELECT {} FROM {} x").format(sql.SQL(", ").join(counts), merge.source)
        found = connection.execute(query).fetchone() or ()
        columns: list[tuple[Fitted, str]] = [(column, "does not fit exactly") for column, _ in limited]
        columns += [(column, "of the key is NULL") for column in keys]
        for (column, what), count in zip(columns, found, strict=True):
            if count:
                raise StreamFailed(
                    f"{self.table}: column {column.name} ({column.column.type}) {what} in {count} of the slice's rows",
                    next_step="correct the rows at the source, or give the table a column that holds them, then run "
                    "again",
                    pipeline=self.pipeline,
                    stream=self.slice.stream,
                )

    # ------------------------------------------------------------ errors

    def _unclear(self, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {self.slice.number} was not committed by this attempt: {why}",
            next_step="ask the sink which slice it holds",
            pipeline=self.pipeline,
            stream=self.slice.stream,
        )

    def _refused(self, why: str) -> SliceRefused:
        return SliceRefused(
            f"slice {self.slice.number} was not committed: {why}",
            next_step="run again; if it happens again, report it as a defect",
            pipeline=self.pipeline,
            stream=self.slice.stream,
        )
