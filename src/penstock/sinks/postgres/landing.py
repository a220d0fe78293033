"""One slice into its table: what the receipts name is counted, merged and noted, in one transaction with the ledger."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, ConnectionFailed, SliceRefused, StreamFailed, StreamRefused
from penstock.links.postgres.literals import TableName, to_text
from penstock.ports import Probe
from penstock.sinks.postgres.binding import Named
from penstock.sinks.postgres.checks import (
    ANOTHERS,
    DELETES_WITHOUT_KEY,
    RENDER_DELETES,
    deletes_without_key,
    owned_by_another,
    replacing,
    written_over,
)
from penstock.sinks.postgres.creating import Making
from penstock.sinks.postgres.filling import Filling
from penstock.sinks.postgres.fitting import CHANGE, fitted, lacking, put_aside
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.merging import Merge, Rules
from penstock.sinks.postgres.own_source import OWN_SOURCE, into_itself, reads_itself
from penstock.sinks.postgres.quarantine import Quarantine
from penstock.sinks.postgres.sifting import Bad, Sieve, left_out
from penstock.sinks.postgres.staging import PLACE, Staging, drop
from penstock.sinks.postgres.target import Target, describe, holds_more
from penstock.sinks.postgres.triggers import still


@dataclass(frozen=True)
class Landing:
    """A slice on its way into its table."""

    pipeline: str
    ledger: Ledger
    slice: Slice
    attempt: str
    named: Named
    rules: Rules
    #: the first full refresh may delete rows that it finds
    replace_existing: bool
    create: bool
    #: the table's own triggers run for these rows
    triggers: bool
    staging: Staging
    receipts: Sequence[Receipt]
    quarantine: Quarantine
    #: the columns that name a row in words
    names: Sequence[str]
    probe: Probe

    # ------------------------------------------------------------ the table

    @property
    def table(self) -> TableName:
        return self.named.table

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table, or what it lacks: in a transaction of its own, so that locks stay short."""
        self.ledger.make(connection)
        entry = self.ledger.whole(connection, self.slice.stream, self.named)
        if entry is None:
            self._must_not_read_itself(connection)
        others = self.ledger.others(connection, self.slice.stream, to_text(self.table.sql)) if self.anew else ()
        if others:
            raise self._not_taken(owned_by_another(self.table, others), ANOTHERS)
        if not self.create:
            return
        making = Making(
            pipeline=self.pipeline,
            stream=self.slice.stream,
            table=self.table,
            content=Content.parse(self.slice.content),
            before=Content.parse(entry.slice.content) if entry else None,
            key=self.rules.key,
            mark=self.rules.deleted_at if self.rules.deletes == "soft" else None,
        )
        if making.statements(connection, describe(connection, self.table)):
            # One after the other: two that make the same table at once would fail on the server's own catalog.
            self.ledger.alone(connection)
            for each in making.statements(connection, describe(connection, self.table)):
                connection.execute(each)

    def _must_not_read_itself(self, connection: psycopg.Connection[Any]) -> None:
        """Checked here too: a slice that was begun before `url` changed is not checked again."""
        content, oid = Content.parse(self.slice.content), self.named.oid(connection)
        if oid is not None and reads_itself(connection, content, oid, whole=self.anew):
            raise self._not_taken(into_itself(self.table, content), OWN_SOURCE)

    # ------------------------------------------------------------ the transaction

    def land(self, connection: psycopg.Connection[Any], bad: Sequence[Bad] = ()) -> Outcome:
        """Everything that becomes visible at once. CommitUnclear if the ledger is not at the slice before.

        Bad rows go into quarantine.
        """
        rows = sum(receipt.rows for receipt in self.receipts)
        try:
            with connection.transaction():
                moved = self.ledger.move(
                    connection,
                    self.slice,
                    target=to_text(self.table.sql),
                    rows=rows,
                    bytes_=sum(receipt.bytes for receipt in self.receipts),
                )
        except psycopg.errors.LockNotAvailable:
            who = self.ledger.busy(connection)
            raise self._unclear(f"another attempt is at it and has not ended{who}") from None
        if not moved:
            raise self._unclear("the ledger does not hold the slice before it")
        self.probe.at("postgres.moved", number=self.slice.number)
        self._hold_table(connection)
        outcome = Outcome()
        if self.slice.kind.moves:
            outcome = self._merged(connection, rows, bad)
        # A refresh also deletes what did not come in.
        if outcome.rows - (outcome.deleted if self.anew else 0) != rows:
            raise self._refused(f"{rows} rows came in, and {outcome.rows} are accounted for")
        self.ledger.note(connection, self.slice, self.attempt, outcome, target=to_text(self.table.sql))
        drop(connection, self.staging.sql)
        return outcome

    def _hold_table(self, connection: psycopg.Connection[Any]) -> None:
        """From here on nobody drops or renames the table; it is the one that the slices before went into.

        What the first full refresh would delete was looked for before, and may have come since then.
        """
        try:
            with connection.transaction():
                connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(self.table.sql))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            if self.slice.kind.moves:
                raise self._gone() from None
        entry = self.ledger.read(connection, self.slice.stream)
        binding = entry.binding if entry else None
        if binding is not None and not self.named.is_of(binding, self.named.oid(connection)):
            raise self._unclear(f"{self.table} is not the table that the slices before it went into")
        if self.anew and not self.replace_existing and not (binding and binding.refreshed):
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self.table.sql))
            ours = self.ledger.created(connection, self.slice.stream) if binding else 0
            if holds_more(connection, self.table, ours):
                raise self._not_taken(written_over(self.table), replacing(self.table))

    def _merged(self, connection: psycopg.Connection[Any], rows: int, bad: Sequence[Bad]) -> Outcome:
        if deletes_without_key(Content.parse(self.slice.content), self.rules):
            raise self._not_taken(DELETES_WITHOUT_KEY, RENDER_DELETES)
        filling, merge = self.filling(connection)
        aside = Outcome()
        if bad and merge is not None:
            self.quarantine.put(connection, merge.staging, self.columns, bad, self.slice, self.table, self.names)
            left_out(connection, merge.staging, [row.place for row in bad])
            aside = Outcome(quarantined=len(bad))
        with still(connection, filling.target, on=self.triggers):
            outcome = aside + filling.fill(merge, rows - len(bad), anew=self.anew)
        if self.anew and outcome.folded and not self.rules.newer_than:
            raise self._shared_key(outcome.folded)
        return outcome

    @property
    def anew(self) -> bool:
        """Whether the slice takes the place of all before it."""
        return self.slice.kind is Kind.REFRESH

    def sift(self, connection: psycopg.Connection[Any], known: Sequence[Bad], *, most: int) -> list[Bad]:
        """The rows that the table will not take, apart from those that are known; to be rolled back."""
        filling, merge = self.filling(connection)
        if merge is None:
            return []
        left_out(connection, merge.staging, [row.place for row in known])
        with still(connection, filling.target, on=self.triggers):
            return Sieve(filling, merge, self.names, most=most).sift(anew=self.anew)

    def filling(self, connection: psycopg.Connection[Any]) -> tuple[Filling, Merge | None]:
        """The table as it is now, and what is to be merged; None: no part brought anything."""
        target = describe(connection, self.table)
        if target is None:
            raise self._gone()
        missing = lacking(self.columns, target)
        if missing:
            raise StreamFailed(
                f"{self.table} has no column {missing[0]} any more",
                next_step="add it, or leave it out with `shape` on the stream, then run again",
                pipeline=self.pipeline,
                stream=self.slice.stream,
            )
        return Filling(connection, target), self._merge(connection, target) if self.receipts else None

    # ------------------------------------------------------------ what was put aside

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that are written, and the type in which each was staged.

        Those that the source no longer has are left out: their NULLs are no values, and the table keeps what it has.
        """
        content = Content.parse(self.slice.content)
        gone = {*absent(content), *(name for receipt in self.receipts for name in receipt.absent)}
        self._must_not_need(gone)
        return [(name, type_) for name, type_ in put_aside(content) if type_ and name not in gone]

    def _must_not_need(self, gone: Collection[str]) -> None:
        for option, name in self.rules.needs:
            if name in gone:
                raise StreamRefused(
                    f"slice {self.slice.number} comes without the column {name}, which is gone at the source, and "
                    f"`{option}` needs it",
                    next_step=f"bring the column back, or change `{option}` on the stream, then run again",
                    pipeline=self.pipeline,
                    stream=self.slice.stream,
                )

    def _merge(self, connection: psycopg.Connection[Any], target: Target) -> Merge:
        return Merge(
            staging=self.staging,
            target=target,
            columns=fitted(self.columns, target),
            rules=self.rules,
            named=[(int(receipt.attempt), receipt.part) for receipt in self.receipts],
            alone=self._counted(connection),
            changes=any(name == CHANGE for name, _ in self.columns),
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
        if not found and any(receipt.rows for receipt in self.receipts):
            raise self._crashed()
        for receipt in self.receipts:
            there = found.get(int(receipt.attempt), 0)
            if there != receipt.rows:
                raise self._refused(f"part {receipt.part} put {receipt.rows} rows aside, and {there} are there")
        return set(found) <= {int(receipt.attempt) for receipt in self.receipts}

    # ------------------------------------------------------------ errors

    def _gone(self) -> StreamFailed:
        return StreamFailed(
            f"the table {self.table} is not there",
            next_step="create it, or set `create: true` on the stream, then run again",
            pipeline=self.pipeline,
            stream=self.slice.stream,
        )

    def _shared_key(self, rows: int) -> StreamFailed:
        many = "1 row of the full refresh shares its" if rows == 1 else f"{rows} rows of the full refresh share their"
        return StreamFailed(
            f"{many} key ({', '.join(self.rules.key)}) with another row, and nothing says which of them is the newest",
            next_step="set `newer_than` on the stream, or a `key` that identifies a row, then run again",
            pipeline=self.pipeline,
            stream=self.slice.stream,
        )

    def _not_taken(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=self.slice.stream)

    def _unclear(self, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {self.slice.number} was not committed by this attempt: {why}",
            next_step="ask the sink which slice it holds",
            pipeline=self.pipeline,
            stream=self.slice.stream,
        )

    def _crashed(self) -> ConnectionFailed:
        """Nothing at all is left of what was staged: the server empties unlogged tables when it recovers."""
        return ConnectionFailed(
            f"the server was restarted after a crash, and what was staged there is gone (slice {self.slice.number})",
            next_step="see that the server is up, then run the same command again; the slice is moved again",
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
