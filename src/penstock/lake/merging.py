"""A slice into a keyed table: prepared on a branch of its own, then main, head and chain move at once, or not at all.

The staged, stamped files are appended to the branch; one MERGE there deletes every other row of their keys, both
those that the table had and those that the slice itself has twice. Only then is main moved to the branch, if it is
still where the branch began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.durable import sync_metadata
from penstock.lake.landing import Landed, Landing
from penstock.lake.merge_statement import MergeStatement
from penstock.lake.space import is_full, no_space
from penstock.lake.standing import Standing
from penstock.lake.tables import LostRace, Planted, commit, load, standing_of, translated, undone
from penstock.ports import Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: keys of a slice up to which they are sent to every worker; beyond it, both sides are shuffled
BROADCAST = 500_000
#: for a MERGE with few keys. Iceberg cuts its scan into as many tasks as a shuffle has, or as there are cores if that
#: is more: with Spark's own 200 the tasks cost more than the scan. And what is planned need not be planned again
FEW_KEYS = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
#: what a MERGE of ours is known by, in the summary of its snapshot
KIND_SETTING = f"spark.sql.iceberg.snapshot-property.{names.KIND}"


@dataclass(frozen=True)
class Merging:
    """How a keyed table takes a slice."""

    landing: Landing
    key: Sequence[str]
    spark: Spark
    #: the column that says which of two rows is newer; None: the row that comes last is
    newer_than: str | None = None

    @property
    def branch(self) -> str:
        slice_ = self.landing.slice
        return names.branch_name(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt)

    def put(self, table: Table, standing: Standing, landed: Landed) -> Planted:
        """Prepare on the branch from the snapshot that `table` was loaded with, then swap."""
        if table.metadata.current_snapshot_id is None:
            table, standing = self._begun(table, standing)
        base = table.metadata.current_snapshot_id
        assert base is not None
        probe, number = self.landing.probe, self.landing.slice.number
        self._stage(table, landed, base)
        probe.at("lake.staged", number=number)
        if landed.files and self._may_match(standing, landed):
            self._delete_older(table, landed)
            probe.at("lake.merged", number=number)
        return self._swap(standing, landed, base)

    def _begun(self, table: Table, standing: Standing) -> tuple[Table, Standing]:
        """A table without any snapshot has nothing that a swap could assert: it gets an empty one."""
        planted = commit(table, kind="made", head=standing.head)
        begun = load(self.landing.place, self.landing.table)
        if begun is None or begun.metadata.current_snapshot_id != planted.snapshot:
            # The rows' numbers are those of an empty table: they may be handed out by now.
            raise LostRace("others have landed since")
        return begun, standing_of(begun)

    def _may_match(self, standing: Standing, landed: Landed) -> bool:
        """Whether any key can be there twice; an empty table and a single row spare the MERGE."""
        return not (standing.empty and landed.rows <= 1)

    def _stage(self, table: Table, landed: Landed, base: int) -> None:
        """The slice's files on a branch that begins at the base; a branch that an earlier try left is begun anew."""
        with translated():
            if self.branch in table.metadata.refs:
                table.manage_snapshots().remove_branch(self.branch).commit()
            table.manage_snapshots().create_branch(base, self.branch).commit()
            transaction = table.transaction()
            producer = transaction.update_snapshot(branch=self.branch).merge_append()
            producer.snapshot_properties = {names.KIND: "merge-part"}
            for file in landed.files:
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()

    def _delete_older(self, table: Table, landed: Landed) -> None:
        """One MERGE on the branch: one row of each key in the slice stays, every other row of the key goes."""
        session = self.spark.session()
        place, slice_ = self.landing.place, self.landing.slice
        statement = MergeStatement(
            branch=f"{place.spark_table(self.landing.table)}.branch_{self.branch}",
            stem=names.file_stem(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt),
            first=landed.start,
            last=landed.last,
            key=self.key,
            columns=table.schema().column_names,
            newer_than=self.newer_than,
            broadcast=landed.rows <= BROADCAST,
        )
        settings = {KIND_SETTING: "merge", **(FEW_KEYS if statement.broadcast else {})}
        work = partial(_merge, session, statement.sql(), settings)
        try:
            self.spark.wait(work, failed=f"the MERGE into {self.landing.table} failed")
        except StreamFailed as error:
            raise self._explained(error) from error
        self._sync()

    def _sync(self) -> None:
        """What Spark has written must be on the disk before main names it."""
        table = load(self.landing.place, self.landing.table)
        merged = table.metadata.snapshot_by_name(self.branch) if table else None
        if table is None or merged is None:
            raise LostRace(f"the branch {self.branch} is gone")
        try:
            sync_metadata(table, merged)
        except FileNotFoundError as error:
            raise LostRace(f"files of the branch {self.branch} are gone") from error

    def _explained(self, error: StreamFailed) -> Exception:
        """Whoever has done the slice meanwhile has swept the branch and the files: then that is what happened."""
        table = load(self.landing.place, self.landing.table)
        if table is not None:
            self.landing.must_follow(standing_of(table))
        if table is None or self.branch not in table.metadata.refs:
            return LostRace(f"the branch {self.branch} is gone")
        if undone(str(error.__cause__)):
            return LostRace("others committed while Spark merged")
        slice_ = self.landing.slice
        if is_full(error.__cause__ or error):
            return no_space(self.landing.place.warehouse, pipeline=slice_.pipeline, stream=slice_.stream)
        return error.at(pipeline=slice_.pipeline, stream=slice_.stream)

    def _swap(self, standing: Standing, landed: Landed, base: int | None) -> Planted:
        """Main := an empty snapshot on the branch, with head and chain, if main is still the base.

        The snapshot is what makes it safe: main may be rolled back to the base by hand after another landing has
        handed out the same numbers, and only the format's sequence numbers tell.
        """
        from pyiceberg.table.update import (
            AssertRefSnapshotId,
            AssertTableUUID,
            RemovePropertiesUpdate,
            RemoveSnapshotRefUpdate,
            SetPropertiesUpdate,
            SetSnapshotRefUpdate,
        )

        table = load(self.landing.place, self.landing.table)
        prepared = table.metadata.snapshot_by_name(self.branch) if table else None
        if table is None or prepared is None:
            raise LostRace(f"the branch {self.branch} is gone")
        now = standing_of(table)
        if now.uuid != standing.uuid or now.head != standing.head:
            raise LostRace("others have landed since")
        self.landing.must_follow(now)
        head = max(standing.head, landed.last)
        with translated():
            producer = table.transaction().update_snapshot(branch=self.branch).fast_append()
            planted = Planted(producer.snapshot_id, table.metadata.next_sequence_number())
            summary = self.landing.summary(standing, landed, planted)
            producer.snapshot_properties = {names.KIND: "landing", names.HEAD: str(head), **summary}
            (added, *_), _ = producer._commit()
            updates: tuple[Any, ...] = (
                added,
                SetSnapshotRefUpdate.model_validate(
                    {"ref-name": "main", "type": "branch", "snapshot-id": planted.snapshot}
                ),
                RemoveSnapshotRefUpdate.model_validate({"ref-name": self.branch}),
                SetPropertiesUpdate(
                    updates={names.HEAD: str(head), **self.landing.properties(standing, landed, planted)}
                ),
            )
            if names.TURN in now.properties:
                updates += (RemovePropertiesUpdate(removals=[names.TURN]),)
            table.catalog.commit_table(
                table,
                requirements=(
                    AssertTableUUID(uuid=table.metadata.table_uuid),
                    AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": base}),
                    AssertRefSnapshotId.model_validate({"ref": self.branch, "snapshot-id": prepared.snapshot_id}),
                ),
                updates=updates,
            )
        return planted


def drop_branches(table: Table, branches: Sequence[str]) -> None:
    """Let go of attempts whose slice the table holds: they pin snapshots."""
    with translated():
        manage = table.manage_snapshots()
        for name in branches:
            manage = manage.remove_branch(name)
        manage.commit()


def _merge(session: Any, sql: str, settings: Mapping[str, str]) -> None:
    """Run the statement with settings that hold for it alone."""
    usual = {name: session.conf.get(name) for name in settings if name != KIND_SETTING}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        session.sql(sql)
    finally:
        for name, value in usual.items():
            session.conf.set(name, value)
        session.conf.unset(KIND_SETTING)


def drop_tags(table: Table, tags: Sequence[str]) -> None:
    """Let states go whose files were to stay for a while, and no longer need to."""
    with translated():
        manage = table.manage_snapshots()
        for name in tags:
            manage = manage.remove_tag(name)
        manage.commit()
