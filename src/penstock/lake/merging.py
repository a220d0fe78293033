"""A slice into a keyed table: prepared on a branch of its own, then main, head and chain move at once, or not at all.

The staged, stamped files are appended to the branch; one MERGE there deletes every other row of their keys, both
those that the table had and those that the slice itself has twice. Only then is main moved to the branch, if it is
still where the branch began.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.disk_space import is_full, make_no_space
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.parquet import sync_metadata
from penstock.lake.table_state import TableState
from penstock.lake.tables import (
    LostRace,
    NewSnapshot,
    commit_snapshot,
    extract_state,
    is_lost_race,
    load_table,
    translate_commit_errors,
)
from penstock.ports import Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: keys of a slice up to which they are sent to every worker; beyond it, both sides are shuffled
MAX_BROADCAST_KEYS = 500_000
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

    def put(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        """Prepare on the branch from the snapshot that `table` was loaded with, then swap."""
        if table.metadata.current_snapshot_id is None:
            table, state = self._begun(table, state)
        base = table.metadata.current_snapshot_id
        assert base is not None
        probe, number = self.landing.probe, self.landing.slice.number
        self._stage(table, staged, base)
        probe.at("lake.staged", number=number)
        if staged.files and self._may_match(state, staged):
            self._delete_older(table, staged)
            probe.at("lake.merged", number=number)
        return self._swap(state, staged, base)

    def _begun(self, table: Table, state: TableState) -> tuple[Table, TableState]:
        """A table without any snapshot has nothing that a swap could assert: it gets an empty one."""
        new = commit_snapshot(table, kind="made", head=state.head)
        begun = load_table(self.landing.lake, self.landing.table)
        if begun is None or begun.metadata.current_snapshot_id != new.snapshot:
            # The rows' numbers are those of an empty table: they may be handed out by now.
            raise LostRace("others have landed since")
        return begun, extract_state(begun)

    def _may_match(self, state: TableState, staged: StagedSlice) -> bool:
        """Whether any key can be there twice; an empty table and a single row spare the MERGE."""
        return not (state.empty and staged.rows <= 1)

    def _stage(self, table: Table, staged: StagedSlice, base: int) -> None:
        """The slice's files on a branch that begins at the base; a branch that an earlier try left is begun anew."""
        with translate_commit_errors():
            if self.branch in table.metadata.refs:
                table.manage_snapshots().remove_branch(self.branch).commit()
            table.manage_snapshots().create_branch(base, self.branch).commit()
            transaction = table.transaction()
            producer = transaction.update_snapshot(branch=self.branch).merge_append()
            producer.snapshot_properties = {names.KIND: "merge-part"}
            for file in staged.files:
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()

    def _delete_older(self, table: Table, staged: StagedSlice) -> None:
        """One MERGE on the branch: one row of each key in the slice stays, every other row of the key goes."""
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
            broadcast=staged.rows <= MAX_BROADCAST_KEYS,
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
        table = load_table(self.landing.lake, self.landing.table)
        merged = table.metadata.snapshot_by_name(self.branch) if table else None
        if table is None or merged is None:
            raise LostRace(f"the branch {self.branch} is gone")
        try:
            sync_metadata(table, merged)
        except FileNotFoundError as error:
            raise LostRace(f"files of the branch {self.branch} are gone") from error

    def _explained(self, error: StreamFailed) -> Exception:
        """Whoever has done the slice meanwhile has swept the branch and the files: then that is what happened."""
        table = load_table(self.landing.lake, self.landing.table)
        if table is not None:
            self.landing.must_follow(extract_state(table))
        if table is None or self.branch not in table.metadata.refs:
            return LostRace(f"the branch {self.branch} is gone")
        if is_lost_race(str(error.__cause__)):
            return LostRace("others committed while Spark merged")
        slice_ = self.landing.slice
        if is_full(error.__cause__ or error):
            return make_no_space(self.landing.lake.warehouse, pipeline=slice_.pipeline, stream=slice_.stream)
        return error.at(pipeline=slice_.pipeline, stream=slice_.stream)

    def _swap(self, state: TableState, staged: StagedSlice, base: int | None) -> NewSnapshot:
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

        table = load_table(self.landing.lake, self.landing.table)
        prepared = table.metadata.snapshot_by_name(self.branch) if table else None
        if table is None or prepared is None:
            raise LostRace(f"the branch {self.branch} is gone")
        now = extract_state(table)
        if now.uuid != state.uuid or now.head != state.head:
            raise LostRace("others have landed since")
        self.landing.must_follow(now)
        head = max(state.head, staged.last)
        with translate_commit_errors():
            producer = table.transaction().update_snapshot(branch=self.branch).fast_append()
            new = NewSnapshot(producer.snapshot_id, table.metadata.next_sequence_number())
            summary = self.landing.summary(state, staged, new)
            producer.snapshot_properties = {names.KIND: "landing", names.HEAD: str(head), **summary}
            (added, *_), _ = producer._commit()
            updates: tuple[Any, ...] = (
                added,
                SetSnapshotRefUpdate.model_validate(
                    {"ref-name": "main", "type": "branch", "snapshot-id": new.snapshot}
                ),
                RemoveSnapshotRefUpdate.model_validate({"ref-name": self.branch}),
                SetPropertiesUpdate(updates={names.HEAD: str(head), **self.landing.properties(state, staged, new)}),
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
        return new


def drop_branches(table: Table, branches: Sequence[str]) -> None:
    """Let go of attempts whose slice the table holds: they pin snapshots."""
    with translate_commit_errors():
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
    with translate_commit_errors():
        manage = table.manage_snapshots()
        for name in tags:
            manage = manage.remove_tag(name)
        manage.commit()


def quote(name: str) -> str:
    """A name as Spark SQL reads it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def find_free_name(wanted: str, columns: Collection[str]) -> str:
    """A name that no column has: Spark would take `row._file` for a field of a column called row."""
    taken = {name.lower() for name in columns}
    while wanted in taken:
        wanted += "_"
    return wanted


@dataclass(frozen=True)
class MergeStatement:
    """One slice on one branch."""

    #: the branch, as Spark names it
    branch: str
    #: how the names of the slice's own data files begin
    stem: str
    #: the lowest and the highest number of its rows
    first: int
    last: int
    key: Sequence[str]
    #: every column of the table
    columns: Collection[str]
    #: the column that says which of two rows is newer; None: the row of the slice that came last is
    newer_than: str | None = None
    #: send the slice's keys to every worker
    broadcast: bool = True

    def sql(self) -> str:
        row, new = find_free_name("held", self.columns), find_free_name("new", self.columns)
        hint = f"/*+ broadcast({new}) */ " if self.broadcast else ""
        keys = " and ".join(f"{row}.{quote(name)} = {new}.k{i}" for i, name in enumerate(self.key))
        newest = f"({self._of_the_slice(row)} and {row}.{names.SEQ} = {new}.newest)"
        goes = f"not {newest}"
        if self.newer_than is not None:
            goes = f"if({new}.wins, not {newest}, {self._of_the_slice(row)})"
        return (
            f"merge into {self.branch} {row} using (select {hint}* from ({self._choice()}) {new}) {new} "  # noqa: S608 (quoted)
            f"on {keys} and {goes} when matched then delete"
        )

    def _choice(self) -> str:
        """For each key of the slice: the number of its newest row there, and whether that is newer than the table's."""
        keys = ", ".join(f"{quote(name)} as k{i}" for i, name in enumerate(self.key))
        grouped = ", ".join(f"k{i}" for i in range(len(self.key)))
        value = "" if self.newer_than is None else f", {quote(self.newer_than)} as value, {names.DELETED} as gone"
        rows = (
            f"select {keys}, {names.SEQ} as seq{value} from {self.branch} "  # noqa: S608 (quoted)
            f"where {names.SEQ} between {self.first} and {self.last} and {self._of_the_slice()}"
        )
        if self.newer_than is None:
            return f"select {grouped}, max(seq) as newest from ({rows}) group by {grouped}"  # noqa: S608 (quoted)
        newest = (
            f"select {grouped}, max_by(struct(seq, value, gone), struct(value, seq)) as best "  # noqa: S608 (quoted)
            f"from ({rows}) group by {grouped}"
        )
        others = f"select {keys}, {quote(self.newer_than)} as value from {self.branch} where not {self._of_the_slice()}"  # noqa: S608 (quoted)
        mine = ", ".join(f"s.k{i}" for i in range(len(self.key)))
        hint = "/*+ broadcast(s) */ " if self.broadcast else ""
        # Inner first: the slice's keys go to where the table's rows are. Spark cannot do so in an outer join.
        held = (
            f"select {hint}{mine}, max(t.value) as held from s join ({others}) t on {self._same('s', 't')} "  # noqa: S608 (quoted)
            f"group by {mine}"
        )
        return (
            f"with s as ({newest}), h as ({held}) "  # noqa: S608 (quoted)
            f"select {mine}, s.best.seq as newest, {self._wins()} as wins from s left join h on {self._same('s', 'h')}"
        )

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.k{i} = {other}.k{i}" for i in range(len(self.key)))

    def _wins(self) -> str:
        """A row without a value is newer than none; a delete that knows no more than the key deletes."""
        upsert = "s.best.value is not null and (h.held is null or s.best.value > h.held)"
        delete = "coalesce(s.best.value >= h.held, true)"
        return f"(h.k0 is null or if(coalesce(s.best.gone, false), {delete}, {upsert}))"

    def _of_the_slice(self, row: str | None = None) -> str:
        """Whether a row lies in one of the slice's own files: numbers alone can be anybody's."""
        file = f"{row}._file" if row else "_file"
        return f"(instr({file}, '/{self.stem}-') > 0)"
