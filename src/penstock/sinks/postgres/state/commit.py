"""Commit one slice of ops: fold them in the transaction that moves the ledger, and write what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.core.ops import Layout
from penstock.core.outcome import Outcome
from penstock.core.sizes import count_noun, shown_duration
from penstock.errors import StreamFailed
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.bad_rows import BadRow
from penstock.sinks.postgres.commit import SliceCommit
from penstock.sinks.postgres.failures import explain_bad_row, explain_row_error
from penstock.sinks.postgres.merge import UnfitValue
from penstock.sinks.postgres.state.check import (
    refuse_foreign_rows,
    refuse_other_mode,
    refuse_other_writers,
    require_layout,
)
from penstock.sinks.postgres.state.documents import Documents
from penstock.sinks.postgres.state.fields import Entity
from penstock.sinks.postgres.state.fold import Fold
from penstock.sinks.postgres.state.table import list_state_changes, list_wanted
from penstock.sinks.postgres.state.tables import StateTables
from penstock.sinks.postgres.state.write import StateWrite
from penstock.sinks.postgres.target import describe, holds_more
from penstock.sinks.postgres.triggers import delete_rows


@dataclass(frozen=True)
class StateCommit(SliceCommit):
    """One attempt at one slice of ops."""

    #: lines for the user, once the slice is committed
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def tables(self) -> StateTables:
        return StateTables(self.ledger.schema, self.slice.pipeline, self.slice.stream)

    @property
    def layout(self) -> Layout:
        return require_layout(self.content)

    def run(self) -> Outcome:
        outcome = super().run()
        for note in self.notes:
            self.context.say(self.slice.stream, note)
        for warning in self.warnings:
            self.context.warn(self.slice.stream, warning)
        return outcome

    # ------------------------------------------------------------ the table

    def _prepare(self, connection: Connection) -> None:
        super()._prepare(connection)
        if not self.tables.exist(connection):
            self.ledger.lock_creation(connection)
            self.tables.create(connection)
        refuse_other_writers(self.table, self.ledger.list_others(connection, self.slice.stream, self.table))

    def _list_changes(self, connection: Connection, before: Content | None) -> Sequence[sql.Composed]:
        wanted = list_wanted(connection, self.layout, self.tables.read(connection))
        name = f"stream {self.slice.stream} of pipeline {self.slice.pipeline}"
        return list(list_state_changes(self.config, self.layout, wanted, describe(connection, self.table), name))

    def _hold_table(self, connection: Connection) -> None:
        super()._hold_table(connection)
        if not self.slice.kind.moves or self.tables.read(connection) is not None:
            return
        if self.tables.has_moved(connection):
            raise refuse_other_mode(self.config)
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self.table.sql))
        if not self.config.options.replace_existing and holds_more(connection, self.table, 0):
            raise refuse_foreign_rows(self.table)

    # ------------------------------------------------------------ the transaction

    def _write_rows(self, connection: Connection, rows: int, bad: Sequence[BadRow]) -> Outcome:
        self.notes.clear()
        self.warnings.clear()
        target = describe(connection, self.table)
        if target is None:
            raise self._no_table()
        wanted = [column.name for column in (*self.layout.key, *self.layout.scalars, *self.layout.multi)]
        if missing := [name for name in wanted if target.column(name) is None]:
            raise StreamFailed(
                f"{self.table} no longer has the column {missing[0]}",
                next_step="add it, or take the field out of the stream's tables, then run again",
            )
        before, replaced = self.tables.read(connection), 0
        entity = Entity(self.layout, target)
        if before is None:
            # Only with `replace_existing`: otherwise the table is empty.
            replaced = delete_rows(connection, target, sql.SQL("true"))
        elif before.document() != self.layout.document():
            self.tables.adapt(connection, before, entity)
        self._check_counts(connection)
        documents = self._documents(connection, entity)
        fold = Fold(connection=connection, entity=entity, tables=self.tables, documents=documents)
        fold.run()
        self.context.probe.at("postgres.folded", number=self.slice.number)
        write = StateWrite(connection, entity, self.tables, fold.cleared, self.config.options.triggers)
        outcome = write.run()
        quarantined = fold.documents.quarantine(
            self.ledger.schema,
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
            number=self.slice.number,
            target=str(self.table),
        )
        self._note(fold.early, write)
        self.tables.note(connection, self.layout)
        return outcome + Outcome(quarantined=quarantined, deleted=replaced)

    def _documents(self, connection: Connection, entity: Entity) -> Documents:
        receipts = sorted(self.receipts, key=lambda receipt: receipt.part)
        parts = [(int(receipt.attempt), receipt.rows) for receipt in receipts]
        return Documents(connection, entity, self.staging, parts)

    def _note(self, early: int, write: StateWrite) -> None:
        if early:
            self.notes.append(f"{count_noun(early, 'op')} came before the entity")
        age = self.config.options.early_for
        if age is not None and (dropped := write.forget_early(age)):
            self.warnings.append(
                f"ops of {count_noun(dropped, 'entity') if dropped == 1 else f'{dropped:,} entities'} were dropped: "
                f"the entity has not come for {shown_duration(age)}"
            )

    def _check_outcome(self, outcome: Outcome, rows: int) -> None:
        """Nothing to check: entities are counted, and documents were counted before the fold."""

    def _find_bad_rows(self, error: psycopg.Error | UnfitValue, known: list[BadRow], *, is_last: bool) -> list[BadRow]:
        raise explain_bad_row(str(self.table), explain_row_error(error), quarantines=False) from error
