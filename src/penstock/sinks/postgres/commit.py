"""Commit one slice: count the staged rows that the receipts name, merge them, and record the slice in the ledger.

All of that is one transaction. It is tried again after a conflict with another transaction, and without the rows that
the table rejects if the stream quarantines them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.outcome import Outcome
from penstock.core.retry import Backoff, Retry
from penstock.core.sizes import count_noun
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, ConnectionFailed, SliceRefused, StreamFailed, StreamRefused
from penstock.links.pause import pause
from penstock.links.postgres.literals import TableName, to_text
from penstock.links.postgres.write_connection import Connection, WriteConnection
from penstock.links.watch import Watch
from penstock.ports import Context
from penstock.sinks.postgres.bad_rows import BadRow, BadRowSearch
from penstock.sinks.postgres.check import (
    refuse_foreign_rows,
    refuse_foreign_streams,
    refuse_own_source,
    refuse_unkeyed_deletes,
)
from penstock.sinks.postgres.columns import CHANGE, map_columns, missing_columns, staged_columns
from penstock.sinks.postgres.create import list_changes
from penstock.sinks.postgres.failures import (
    CONFLICTS,
    explain_bad_row,
    explain_row_error,
    find_blocker,
    is_row_error,
)
from penstock.sinks.postgres.ledger import Ledger, find_oid, is_bound
from penstock.sinks.postgres.merge import Merge, UnfitValue
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.quarantine import MAX_SLICE_ROWS, Quarantine
from penstock.sinks.postgres.staging import PLACE, Staging, drop
from penstock.sinks.postgres.target import describe, holds_more

#: of a commit. The pauses are random, so that two do not meet again
COMMITS = Retry(5, Backoff(0.1, 0.5))
#: for the server to take note that a statement is to end
CANCEL_SECONDS = 5.0


@dataclass(frozen=True)
class SliceCommit:
    """One attempt at one slice."""

    writing: WriteConnection
    ledger: Ledger
    quarantine: Quarantine
    config: StreamConfig
    staging: Staging
    slice: Slice
    receipts: Sequence[Receipt]
    context: Context

    @property
    def table(self) -> TableName:
        return self.config.table

    @property
    def is_refresh(self) -> bool:
        """Whether the slice replaces all rows before it."""
        return self.slice.kind is Kind.REFRESH

    @cached_property
    def content(self) -> Content:
        return Content.parse(self.slice.content)

    # ------------------------------------------------------------ tries

    def run(self) -> Outcome:
        """Commit the slice and return what became of each row; psycopg.Error if the server refuses."""
        rows = sum(receipt.rows for receipt in self.receipts)
        with Watch(self.context, self.slice.stream).report(f"merging {count_noun(rows, 'row')}"):
            return self._try_repeatedly()

    def _try_repeatedly(self) -> Outcome:
        bad: list[BadRow] = []
        number, probe = self.slice.number, self.context.probe
        for attempt in COMMITS.attempts():
            try:
                with self._transaction() as connection:
                    self._prepare(connection)
                probe.at("postgres.prepared", number=number)
                with self._transaction() as connection:
                    outcome = self._write(connection, bad)
                    probe.at("postgres.merged", number=number)
                probe.at("postgres.landed", number=number)
                return outcome
            except (psycopg.Error, UnfitValue) as error:
                if is_row_error(error):
                    bad += self._find_bad_rows(error, bad, is_last=COMMITS.is_last(attempt))
                elif getattr(error, "sqlstate", None) in CONFLICTS and not COMMITS.is_last(attempt):
                    pause(COMMITS.backoff, attempt, is_cancelled=self.context.is_cancelled)
                else:
                    raise
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _transaction(self, *, keep: bool = True) -> Iterator[Connection]:
        """A transaction that a run which is to end cancels, unless its COMMIT is about to be sent.

        The outcome of a COMMIT must not be in doubt, and one that waits for a standby would not wait any longer.
        """

        def cancel() -> None:
            # If the statement goes on, it is cancelled again.
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=CANCEL_SECONDS)

        watch = Watch(self.context, self.slice.stream)
        with self.writing.transaction(keep=keep) as connection, watch.cancel(cancel):
            yield connection

    def _find_bad_rows(self, error: psycopg.Error | UnfitValue, known: list[BadRow], *, is_last: bool) -> list[BadRow]:
        """The rows to quarantine besides those that are known; raises if they are not to be quarantined."""
        quarantines = self.config.options.bad_rows == "quarantine"
        with self._transaction(keep=False) as connection:
            merge = self._merge(connection)
            merge.staging.remove_rows(connection, [row.place for row in known])
            search = BadRowSearch(merge, limit=MAX_SLICE_ROWS + 1 if quarantines else 1)
            bad = search.run(refresh=self.is_refresh)
        if len(known) + len(bad) > MAX_SLICE_ROWS:
            raise StreamFailed(
                f"{self.table}: more than {MAX_SLICE_ROWS} rows of one slice cannot be written; the first: "
                f"{bad[0].reason}, key {bad[0].key or '?'}",
                next_step="that many bad rows suggest a mistake in the table or the stream: correct it, then run again",
            ) from error
        if not bad:
            raise explain_bad_row(str(self.table), explain_row_error(error)) from error
        if not quarantines or is_last:
            raise explain_bad_row(str(self.table), bad[0].reason, bad[0].key) from error
        return bad

    # ------------------------------------------------------------ the table

    def _prepare(self, connection: Connection) -> None:
        """Create or alter the table in a transaction of its own, so that its locks stay short."""
        self.ledger.create(connection)
        stream = self.slice.stream
        entry = self.ledger.read_intact(connection, self.config)
        if entry is None and (oid := find_oid(connection, self.table)):
            # Checked here too: a slice that was planned before `url` changed is not checked again.
            refuse_own_source(connection, self.table, self.content, oid, is_refresh=self.is_refresh)
        if self.is_refresh:
            refuse_foreign_streams(self.table, self.ledger.list_others(connection, stream, self.table))
        if not self.config.options.create:
            return
        before = Content.parse(entry.slice.content) if entry else None
        if self._list_changes(connection, before):
            # One after the other: two that create the same table at once would fail on the server's own catalog.
            self.ledger.lock_creation(connection)
            for each in self._list_changes(connection, before):
                connection.execute(each)

    def _list_changes(self, connection: Connection, before: Content | None) -> Sequence[sql.Composed]:
        """The statements that make the table as the stream needs it."""
        name = f"stream {self.slice.stream} of pipeline {self.slice.pipeline}"
        return list_changes(connection, self.config, self.content, before, describe(connection, self.table), name)

    # ------------------------------------------------------------ the transaction

    def _write(self, connection: Connection, bad: Sequence[BadRow]) -> Outcome:
        """Write everything that becomes visible; bad rows are quarantined.

        CommitUnclear if the ledger is not at the slice before.
        """
        rows, target = sum(receipt.rows for receipt in self.receipts), to_text(self.table.sql)
        bytes_ = sum(receipt.bytes for receipt in self.receipts)
        try:
            with connection.transaction():
                has_moved = self.ledger.move(connection, self.slice, target=target, rows=rows, bytes_=bytes_)
        except psycopg.errors.LockNotAvailable:
            blocker = find_blocker(connection, [TableName(self.ledger.schema, "ledger")])
            who = f": {blocker[1]}" if blocker else ""
            raise self._unclear(f"another attempt is still committing it{who}") from None
        if not has_moved:
            raise self._unclear("the ledger does not have the previous slice")
        self.context.probe.at("postgres.moved", number=self.slice.number)
        self._hold_table(connection)
        outcome = self._write_rows(connection, rows, bad) if self.slice.kind.moves else Outcome()
        self._check_outcome(outcome, rows)
        self.ledger.note(connection, self.slice, self.staging.attempt, outcome, target=target)
        drop(connection, self.staging.sql)
        return outcome

    def _check_outcome(self, outcome: Outcome, rows: int) -> None:
        """SliceRefused unless each row was counted once."""
        # A refresh also deletes rows that did not come in.
        if outcome.rows - (outcome.deleted if self.is_refresh else 0) != rows:
            raise self._refused(f"{rows} rows were staged, but only {outcome.rows} were counted after the write")

    def _hold_table(self, connection: Connection) -> None:
        """Keep others from dropping or renaming the table, and check that the earlier slices went into it.

        Rows that the first full refresh would delete may have been inserted after the check.
        """
        try:
            with connection.transaction():
                connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(self.table.sql))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            if self.slice.kind.moves:
                raise self._no_table() from None
        entry = self.ledger.read(connection, self.slice.stream)
        binding = entry.binding if entry else None
        if binding is not None and not is_bound(self.config, binding, find_oid(connection, self.table)):
            raise self._unclear(f"{self.table} is not the table that the slices before it went into")
        if self.is_refresh and not self.config.options.replace_existing and not (binding and binding.refreshed):
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self.table.sql))
            own = self.ledger.count_created(connection, self.slice.stream) if binding else 0
            if holds_more(connection, self.table, own):
                refuse_foreign_rows(self.table)

    def _write_rows(self, connection: Connection, rows: int, bad: Sequence[BadRow]) -> Outcome:
        refuse_unkeyed_deletes(self.config, self.content)
        merge = self._merge(connection)
        if bad:
            self.quarantine.add(connection, merge.staging, self._columns, bad, self.slice, self.config)
            merge.staging.remove_rows(connection, [row.place for row in bad])
        outcome = merge.fill(rows - len(bad), refresh=self.is_refresh)
        if self.is_refresh and outcome.folded and not self.config.newer_than:
            one = outcome.folded == 1
            many = (
                "1 row of the full refresh shares its"
                if one
                else f"{outcome.folded} rows of the full refresh share their"
            )
            raise StreamFailed(
                f"{many} key ({', '.join(self.config.key)}) with another row, and nothing says which of them is the "
                "newest",
                next_step="set `newer_than` on the stream, or a `key` that identifies a row, then run again",
            )
        return outcome + Outcome(quarantined=len(bad))

    # ------------------------------------------------------------ the staged rows

    @cached_property
    def _columns(self) -> list[tuple[str, str]]:
        """The columns that are written, each with the type in which it was staged.

        Columns that the source no longer has are left out: their NULLs are not values, and the table keeps its own.
        """
        gone = {*absent(self.content), *(name for receipt in self.receipts for name in receipt.absent)}
        for option, name in self.config.required_columns:
            if name in gone:
                raise StreamRefused(
                    f"slice {self.slice.number} comes without the column {name}, which is gone at the source, and "
                    f"`{option}` needs it",
                    next_step=f"bring the column back, or change `{option}` on the stream, then run again",
                )
        return [(name, type_) for name, type_ in staged_columns(self.content) if name not in gone]

    def _merge(self, connection: Connection) -> Merge:
        target = describe(connection, self.table)
        if target is None:
            raise self._no_table()
        if missing := missing_columns(self._columns, target):
            raise StreamFailed(
                f"{self.table} no longer has the column {missing[0]}",
                next_step="add it, or leave it out with `shape` on the stream, then run again",
            )
        return Merge(
            connection=connection,
            config=self.config,
            staging=self.staging,
            target=target,
            columns=map_columns(self._columns, target),
            parts=[(int(receipt.attempt), receipt.part) for receipt in self.receipts],
            is_alone=self._check_counts(connection),
            has_changes=CHANGE in dict(self._columns),
            replaces_equal=self.slice.kind is Kind.REPAIR,
        )

    def _check_counts(self, connection: Connection) -> bool:
        """SliceRefused if the staged rows differ from the receipts; returns whether no other rows are staged."""
        if not self.receipts:
            return True
        query = sql.SQL("SELECT {0} >> 32, count(*) FROM {1} GROUP BY 1").format(
            sql.Identifier(PLACE), self.staging.sql
        )
        try:
            with connection.transaction():
                staged: dict[int, int] = dict(connection.execute(query).fetchall())
        except psycopg.errors.UndefinedTable:
            # Another attempt has committed the slice, and a sweep has dropped the table: the ledger decides.
            raise self._unclear(f"{self.staging.name} does not exist any more") from None
        if not staged and any(receipt.rows for receipt in self.receipts):
            # The server empties unlogged tables when it recovers.
            raise ConnectionFailed(
                f"the server was restarted after a crash, and the rows staged there are gone (slice "
                f"{self.slice.number})",
                next_step="see that the server is up, then run the same command again; the slice is moved again",
            )
        for receipt in self.receipts:
            count = staged.get(int(receipt.attempt), 0)
            if count != receipt.rows:
                raise self._refused(
                    f"part {receipt.part} staged {receipt.rows} rows, but the staging table has {count}"
                )
        return set(staged) <= {int(receipt.attempt) for receipt in self.receipts}

    # ------------------------------------------------------------ errors

    def _no_table(self) -> StreamFailed:
        step = "create it, or set `create: true` on the stream, then run again"
        return StreamFailed(f"the table {self.table} does not exist", next_step=step)

    def _unclear(self, why: str) -> CommitUnclear:
        what = f"slice {self.slice.number} was not committed by this attempt: {why}"
        return CommitUnclear(what, next_step="ask the sink which slice it holds")

    def _refused(self, why: str) -> SliceRefused:
        what = f"slice {self.slice.number} was not committed: {why}"
        return SliceRefused(what, next_step="run again; if it happens again, report it as a defect")
