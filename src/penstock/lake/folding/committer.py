"""Lands a slice of documents in a state table: folds it on a branch, and moves main with everything that belongs to it.

The entities that change are appended to the branch, one MERGE there deletes their older rows, and one commit moves main
with head, chain and side data. A race that is lost folds again on what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.core.ops import Layout
from penstock.errors import StreamRefused, StreamStopped
from penstock.lake import names
from penstock.lake.folding import side_data
from penstock.lake.folding.new_entities import Written
from penstock.lake.folding.run import Counts, FoldResult, FoldRun, SideFiles
from penstock.lake.folding.side_data import BRANCH, kind_of, list_files
from penstock.lake.folding.staging import StagedPart
from penstock.lake.folding.writing import WrittenPart
from penstock.lake.landing import StagedSlice, list_current_files
from penstock.lake.merging import Merging
from penstock.lake.parquet import FileLayout
from penstock.lake.table_state import TableState
from penstock.lake.tables import MovedBranch, NewSnapshot, drop_refs, start_branch, translate_commit_errors

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: ops that a partition of a shuffle has
OPS_PER_PARTITION = 100_000
MAX_PARTITIONS = 200
#: a slice that is folded without adapting the plan
FEW_DOCUMENTS = 20_000
#: documents of a slice, and rows of a table, for which plans are not compiled
FEW_TO_COMPILE, FEW_ROWS = 2_000, 300_000


@dataclass(frozen=True)
class Folding(Merging):
    """Commits a slice of documents to a state table."""

    layout: Layout = field(kw_only=True)
    parts: Sequence[StagedPart] = field(kw_only=True)
    files: FileLayout = field(kw_only=True)
    #: microseconds after which early ops are dropped; None: never
    early_for: int | None = field(kw_only=True, default=None)
    counts: Counts = field(kw_only=True, default_factory=Counts)

    @property
    def side_branch(self) -> str:
        slice_ = self.landing.slice
        return names.branch_name(slice_.pipeline, slice_.stream, slice_.number, f"{self.landing.attempt}side")

    def commit(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        if table.metadata.current_snapshot_id is None:
            table, state = self._add_first_snapshot(table, state)
        base = table.metadata.current_snapshot_id
        assert base is not None
        probe, number = self.landing.probe, self.landing.slice.number
        start_branch(table, self.branch, base)
        with self._settings(state):
            side = self._side_files(table, state)
            found = self._fold(table, state, side)
        probe.at("lake.folded", number=number)
        changed = self._staged(staged, state, found)
        if changed.files:
            table = self._load_branch()[0]
            self._stage(table, changed, base)
            probe.at("lake.staged", number=number)
            older = self._replacing(changed, found)
            if older.files and not state.empty:
                self._delete_older(table, older)
                probe.at("lake.merged", number=number)
        kept = self._stage_side(side, found.changed)
        probe.at("lake.side_staged", number=number)
        return self._swap_both(state, changed, base, kept)

    def _staged(self, staged: StagedSlice, state: TableState, found: FoldResult) -> StagedSlice:
        """The new and the changed entities, as a slice that a keyed table takes."""
        written: list[Written | WrittenPart] = [*found.new, *found.changed]
        files = [file for part in written for file in part.files]
        last = max((part.last for part in written if part.last is not None), default=state.head)
        rows = sum(file.record_count for file in files)
        return replace(staged, files=files, rows=rows, start=state.head + 1, last=last)

    def _replacing(self, staged: StagedSlice, found: FoldResult) -> StagedSlice:
        """The entities that may have an older row."""
        files = [file for part in found.changed for file in part.files]
        return replace(staged, files=files, rows=sum(file.record_count for file in files), start=found.start)

    # ------------------------------------------------------------ folding

    @contextmanager
    def _settings(self, state: TableState) -> Iterator[None]:
        """Settings for the size of the slice; those of the session come back."""
        session = self.spark.session()
        rows = sum(part.rows for part in self.parts)
        wanted = {"spark.sql.shuffle.partitions": str(min(MAX_PARTITIONS, max(2, rows // OPS_PER_PARTITION)))}
        if rows <= FEW_DOCUMENTS:
            # A plan that is adapted makes a job of each stage, which costs more than such a slice itself.
            wanted["spark.sql.adaptive.enabled"] = "false"
        if rows <= FEW_TO_COMPILE and state.rows <= FEW_ROWS:
            # To compile a plan costs more than to interpret it for so few rows.
            wanted |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        before = {name: session.conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            session.conf.set(name, value)
        try:
            yield
        finally:
            for name, was in before.items():
                if was is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, was)

    def _fold(self, table: Table, state: TableState, side: SideFiles) -> FoldResult:
        from penstock.errors import StreamFailed

        slice_ = self.landing.slice
        run = FoldRun(
            self.spark.session(),
            self.layout,
            self.files,
            self.parts,
            branch=f"{self.landing.lake.spark_table(self.landing.table)}.branch_{self.branch}",
            current=lambda: list_current_files(table),
            is_empty=state.empty,
            side=side,
            name=names.file_stem(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt),
            start=state.head + 1,
            number=slice_.number,
            early_for=self.early_for,
            counts=self.counts,
        )
        try:
            return self.spark.wait(run.run, failed=f"the fold into {self.landing.table} failed")
        except StreamFailed as error:
            raise self._explain(error) from error

    # ------------------------------------------------------------ side data

    def _side_files(self, table: Table, state: TableState) -> SideFiles:
        named = state.properties.get(names.SIDE)
        try:
            files = list_files(table, int(named) if named else None)
        except KeyError as error:
            slice_ = self.landing.slice
            raise StreamStopped(
                f"the table {self.landing.table} has lost the snapshot {named}, in which early ops and the last values "
                f"of fan-outs are kept (branch {BRANCH})",
                next_step=f"restore the branch; or `penstock state migrate FILE --stream {slice_.stream}` "
                "begins again in a new table",
                safe="Nothing was changed.",
                pipeline=slice_.pipeline,
                stream=slice_.stream,
            ) from error
        except side_data.OtherForm as error:
            raise StreamRefused(
                f"the side data of the table {self.landing.table} (branch {BRANCH}) was written by another version of "
                f"penstock: {error}",
                next_step="use that version; or name another table with `into`, and the stream begins again there",
                safe="Nothing was changed.",
            ) from error
        return SideFiles(int(named) if named else None, files)

    def _stage_side(self, side: SideFiles, written: Sequence[WrittenPart]) -> int | None:
        """Put the new files on a branch of their own; the snapshot that then belongs to the table."""
        new = [file for part in written for file in part.side]
        if not new and not side.is_rewritten:
            return side.snapshot
        table = self._load_branch()[0]
        branch = self.side_branch
        if branch in table.metadata.refs:
            drop_refs(table, [branch])
            table = self._load_branch()[0]
        if side.snapshot is not None and not side.is_rewritten:
            start_branch(table, branch, side.snapshot)
            table = self._load_branch()[0]
        added = [*(file for file in side.files if kind_of(file) == "bad"), *new] if side.is_rewritten else new
        with translate_commit_errors():
            transaction = table.transaction()
            producer = transaction.update_snapshot(branch=branch).fast_append()
            producer.snapshot_properties = {names.KIND: "side", names.SIDE_FORM: side_data.FORM}
            for file in added:
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()
            return producer.snapshot_id

    def _swap_both(self, state: TableState, changed: StagedSlice, base: int, side: int | None) -> NewSnapshot:
        before = state.properties.get(names.SIDE)
        if side is None:
            return self._swap(state, changed, base)
        moved = None if str(side) == before else MovedBranch(BRANCH, side, self.side_branch)
        return self._swap(state, changed, base, beside=moved, more={names.SIDE: str(side)})
