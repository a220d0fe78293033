"""Lands a slice in a keyed table: prepares it on a branch, then moves main, head and chain together or not at all.

The staged, stamped files are appended to the branch. One MERGE there deletes every other row of their keys: those that
the table had, and those that the slice itself has twice. A soft delete of the slice goes too: the same MERGE updates
the row that it marks, under the number of the delete. Only then does main move to the branch, if it is still where the
branch began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.disk_space import is_full, make_no_space
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.merge_statement import Deletes, MergeStatement
from penstock.lake.parquet import sync_metadata
from penstock.lake.table_state import TableState
from penstock.lake.tables import (
    LostRace,
    MovedBranch,
    NewSnapshot,
    commit_snapshot,
    extract_state,
    is_lost_race,
    load_table,
    move_main,
    start_branch,
    translate_commit_errors,
)
from penstock.ports import Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: most keys that are sent to every worker; with more, both sides are shuffled
MAX_BROADCAST_KEYS = 500_000
#: for a MERGE with few keys. Iceberg cuts its scan into as many tasks as a shuffle has, or as there are cores if that
#: is more: with Spark's own 200 the tasks cost more than the scan. A plan need not be adapted either
FEW_KEYS = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
#: sets the kind in the summary of the snapshot that a statement makes
KIND_SETTING = f"spark.sql.iceberg.snapshot-property.{names.KIND}"


@dataclass(frozen=True)
class Merging:
    """Commits a slice to a keyed table."""

    landing: Landing
    key: Sequence[str]
    spark: Spark
    #: the column that decides which of two rows is newer; None: the last row is
    newer_than: str | None = None
    #: what becomes of rows that the slice deletes
    deletes: Deletes = "hard"
    #: with soft deletes, the column that holds their timestamps
    deleted_at: str | None = None
    #: a row that is as new as the table's replaces it: it comes by a repair, which reads what the source has now
    replaces_equal: bool = False

    @property
    def branch(self) -> str:
        slice_ = self.landing.slice
        return names.branch_name(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt)

    def commit(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        """Prepare the slice on a branch from the snapshot that `table` was loaded with, then move main to it."""
        if table.metadata.current_snapshot_id is None:
            table, state = self._add_first_snapshot(table, state)
        base = table.metadata.current_snapshot_id
        assert base is not None
        probe, number = self.landing.probe, self.landing.slice.number
        self._stage(table, staged, base)
        probe.at("lake.staged", number=number)
        # No key can be there twice if the table is empty and the slice has a single row, which stays.
        if staged.files and not (state.empty and staged.rows <= 1 and self.deletes == "hard"):
            self._delete_older(table, staged)
            probe.at("lake.merged", number=number)
        return self._swap(state, staged, base)

    def _add_first_snapshot(self, table: Table, state: TableState) -> tuple[Table, TableState]:
        """Give a table without any snapshot an empty one, which the commit can assert."""
        new = commit_snapshot(table, kind="made", head=state.head)
        begun = load_table(self.landing.lake, self.landing.table)
        if begun is None or begun.metadata.current_snapshot_id != new.snapshot:
            # The rows' numbers are those of an empty table: others may have been given them by now.
            raise LostRace("others have landed since")
        return begun, extract_state(begun)

    def _stage(self, table: Table, staged: StagedSlice, base: int) -> None:
        """Append the slice's files to a branch that starts at the base."""
        start_branch(table, self.branch, base)
        with translate_commit_errors():
            transaction = table.transaction()
            producer = transaction.update_snapshot(branch=self.branch).merge_append()
            producer.snapshot_properties = {names.KIND: "merge-part"}
            for file in staged.files:
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()

    def _delete_older(self, table: Table, staged: StagedSlice) -> None:
        """Keep one row of each key in the slice, and delete every other row of the key, by one MERGE on the branch."""
        session = self.spark.session()
        lake, slice_ = self.landing.lake, self.landing.slice
        statement = MergeStatement(
            branch=f"{lake.spark_table(self.landing.table)}.branch_{self.branch}",
            stem=names.file_stem(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt),
            first=staged.start,
            last=staged.last,
            key=self.key,
            columns=table.schema().column_names,
            newer_than=self.newer_than,
            deletes=self.deletes,
            deleted_at=self.deleted_at,
            replaces_equal=self.replaces_equal,
            broadcast=staged.rows <= MAX_BROADCAST_KEYS,
        )
        settings = {KIND_SETTING: "merge", **(FEW_KEYS if statement.broadcast else {})}
        try:
            self.spark.wait(
                lambda: run_statement(session, statement.sql(), settings),
                failed=f"the MERGE into {self.landing.table} failed",
            )
        except StreamFailed as error:
            raise self._explain(error) from error
        merged = self._load_branch()
        try:
            # What Spark has written must be on the disk before main names it.
            sync_metadata(*merged)
        except FileNotFoundError as error:
            raise LostRace(f"files of the branch {self.branch} are gone") from error

    def _explain(self, error: StreamFailed) -> Exception:
        """Explain why Spark failed: another attempt may have landed the slice, and removed the branch and its files."""
        slice_, cause = self.landing.slice, error.__cause__ or error
        if (table := load_table(self.landing.lake, self.landing.table)) is not None:
            self.landing.must_follow(extract_state(table))
        if table is None or self.branch not in table.metadata.refs:
            return LostRace(f"the branch {self.branch} is gone")
        if is_lost_race(str(cause)):
            return LostRace("others committed while Spark merged")
        if is_full(cause):
            return make_no_space(self.landing.lake.warehouse, pipeline=slice_.pipeline, stream=slice_.stream)
        return error.at(pipeline=slice_.pipeline, stream=slice_.stream)

    def _swap(
        self,
        state: TableState,
        staged: StagedSlice,
        base: int,
        *,
        beside: MovedBranch | None = None,
        more: Mapping[str, str] | None = None,
    ) -> NewSnapshot:
        """Move main to the branch, with head and chain, if main is still the base.

        `beside`: another branch that moves with it. `more`: properties, also for the snapshot's summary.
        """
        more = more or {}
        table = self._load_branch()[0]
        now = extract_state(table)
        if now.uuid != state.uuid or now.head != state.head:
            raise LostRace("others have landed since")
        self.landing.must_follow(now)
        return move_main(
            table,
            self.branch,
            base=base,
            kind="landing",
            head=max(state.head, staged.last),
            properties=lambda new: {**self.landing.properties(state, staged, new), **more},
            summary=lambda new: {**self.landing.summary(state, staged, new), **more},
            beside=beside,
            unset=[names.TURN],
        )

    def _load_branch(self) -> tuple[Table, Snapshot]:
        table = load_table(self.landing.lake, self.landing.table)
        snapshot = table.metadata.snapshot_by_name(self.branch) if table else None
        if table is None or snapshot is None:
            raise LostRace(f"the branch {self.branch} is gone")
        return table, snapshot


def run_statement(session: Any, sql: str, settings: Mapping[str, str]) -> Any:
    """Run a statement with settings that hold for it alone, and return the DataFrame of its answer.

    It is not collected here: PySpark leaves the socket of a collected answer to the garbage collector.
    """
    usual = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        return session.sql(sql)
    finally:
        for name, before in usual.items():
            if before is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, before)
