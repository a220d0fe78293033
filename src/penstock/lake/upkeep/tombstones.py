"""Tombstones of a keyed table that every reader has seen are forgotten, after a while.

Prepared by one DELETE on a branch, under the turn; then main moves to it, if it is still where the branch began, and
the floor with it. A reader whose mark is below the floor stops, and one that was passed by force or as abandoned finds
what it lost in its own property. A reader that began after the deletes needs none of them, and reads current rows
below the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.sizes import shown_duration
from penstock.lake import names
from penstock.lake.data_files import OpenDataFiles, ScanFile, explain_read_errors
from penstock.lake.head_times import head_at, read_times
from penstock.lake.landing import format_inspected
from penstock.lake.merging import KIND_SETTING, drop_branches
from penstock.lake.planning import find_files, open_data_files
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import LostRace, NewSnapshot, OutcomeUnknown, load_table, translate_commit_errors
from penstock.lake.upkeep.expiry import OWN_BRANCH
from penstock.lake.upkeep.job import (
    MAX_LOST_RACES,
    Conflict,
    StepResult,
    UpkeepJob,
    count_noun,
    describe_holder,
    hold_turn,
    refuse_rolled_back,
    run_procedure,
)
from penstock.lake.upkeep.retention import describe_losses, format_losses

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "tombstones"
#: in a summary: what the snapshot was made for
KIND = "purge"


@dataclass(frozen=True)
class Found:
    """The tombstones that may go."""

    #: their numbers, sorted
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    holder: ReaderMark | None

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def last(self) -> int:
        return int(self.numbers[-1]) if len(self.numbers) else 0


def purge(job: UpkeepJob) -> list[StepResult]:
    """Remove tombstones that are old enough; nothing on a log, where they are history."""
    table, state = job.loaded()
    if state.mode != "merge" or names.DELETED not in table.schema().column_names:
        return []
    found = find_tombstones(job, table, state)
    held = f"; held back: {describe_holder(found.holder, job.now)}" if found.holder else ""
    age = shown_duration(job.options.tombstones.age)
    facts = {"tombstones": found.count}
    if not found.count:
        return [StepResult(STEP, f"none older than {age} to remove{held}", facts)]
    losses = count_lost_tombstones(state, found)
    lost = "".join(f"; {line}" for line in describe_losses(losses))
    what = f"{count_noun(found.count, 'tombstone')} older than {age}"
    if job.dry_run:
        return [StepResult(STEP, f"would remove {what}{held}{lost}", facts)]
    for _ in range(MAX_LOST_RACES):
        try:
            with hold_turn(job):
                found = _purged(job, *job.loaded())
            break
        except LostRace:
            job.probe.at("lake.upkeep_lost_race")
        except OutcomeUnknown as error:
            raise job.unclear(error) from error
    else:
        raise job.failed(
            f"other writers came first {MAX_LOST_RACES} times", "run the upkeep again when fewer are at work"
        )
    what = f"{count_noun(found.count, 'tombstone')} older than {age}"
    facts = {"tombstones": found.count}
    return [StepResult(STEP, f"removed {what}{held}{lost}", facts)]


def find_tombstones(job: UpkeepJob, table: Table, state: TableState) -> Found:
    """Tombstones that are old enough and that every reader has seen, from the files' own columns."""
    old = head_at(read_times(state), job.now - job.options.tombstones.age)
    slowest = state.slowest()
    holder = slowest if slowest is not None and slowest.mark < old and not job.force else None
    upto = min(old, holder.mark) if holder else old
    parts = []
    with open_data_files(table) as files:
        for piece in find_files(table, table.metadata.current_snapshot_id, 0, upto):
            parts.append(_tombstones(files, piece, upto))
    numbers = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return Found(numbers, holder)


def _tombstones(files: OpenDataFiles, piece: ScanFile, upto: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of a file's live tombstones; only row groups that have some are read."""
    found = [np.empty(0, np.int64)]
    file = files.file(piece.path)
    if names.DELETED not in file.schema_arrow.names:
        return found[0]
    columns = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    column = columns.index(names.DELETED)
    for unit in files.units(piece, 0, upto):
        statistics = file.metadata.row_group(unit.group).column(column).statistics
        if statistics is not None and statistics.has_min_max and not statistics.max:
            continue
        numbers, mask = files.selected(unit, 0, upto)
        with explain_read_errors(piece.path):
            marks = files.file(piece.path).read_row_group(unit.group, columns=[names.DELETED]).column(0)
        dead = marks.fill_null(False).to_numpy()
        found.append(numbers[mask & dead])
    return np.concatenate(found)


def count_lost_tombstones(state: TableState, found: Found) -> dict[ReaderMark, int]:
    """For each reader, how many of them it has not seen."""
    return {
        reader: found.count - int(np.searchsorted(found.numbers, reader.mark, side="right"))
        for reader in state.readers()
        if reader.mark < found.last
    }


def _purged(job: UpkeepJob, table: Table, state: TableState) -> Found:
    """Under the turn: delete on a branch, then main := branch, with what readers lose."""
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        raise job.failed("others have written meanwhile, and their rows have no place yet", "run the upkeep again")
    found = find_tombstones(job, table, state)
    base = table.metadata.current_snapshot_id
    if not found.count or base is None:
        return found
    branch = f"{OWN_BRANCH}_{job.owner.rpartition('-')[2]}"
    with translate_commit_errors():
        if branch in table.metadata.refs:
            table.manage_snapshots().remove_branch(branch).commit()
        table.manage_snapshots().create_branch(base, branch).commit()
    try:
        _delete(job, branch, found.last)
        job.probe.at("lake.purge_prepared")
        _swap(job, state, branch, base, found)
    except BaseException:
        _forget(job, branch)
        raise
    job.probe.at("lake.purged")
    return found


def _delete(job: UpkeepJob, branch: str, upto: int) -> None:
    at = f"{job.lake.spark_table(job.table)}.branch_{branch}"
    sql = f"delete from {at} where {names.DELETED} and {names.SEQ} <= {upto}"  # noqa: S608 (names are ours)
    try:
        run_procedure(job, sql, {KIND_SETTING: KIND})
    except Conflict as error:
        raise LostRace(str(error)) from error


def _swap(job: UpkeepJob, state: TableState, branch: str, base: int, found: Found) -> None:
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    table = load_table(job.lake, job.table)
    prepared = table.metadata.snapshot_by_name(branch) if table else None
    if table is None or prepared is None or str(table.metadata.table_uuid) != state.uuid:
        raise LostRace(f"the branch {branch} is gone")
    with translate_commit_errors():
        # An empty snapshot on top tells what it was for: a DELETE that drops whole files says nothing of us.
        producer = table.transaction().update_snapshot(branch=branch).fast_append()
        new = NewSnapshot(producer.snapshot_id, table.metadata.next_sequence_number())
        producer.snapshot_properties = {names.KIND: KIND, names.HEAD: str(state.head)}
        (added, *_), _ = producer._commit()
        properties = {
            names.FLOOR: str(max(state.floor, found.last)),
            names.INSPECTED: format_inspected(new),
            **format_losses(count_lost_tombstones(state, found)),
        }
        updates: tuple[Any, ...] = (
            added,
            SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": new.snapshot}),
            RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),
            SetPropertiesUpdate(updates=properties),
        )
        table.catalog.commit_table(
            table,
            requirements=(
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": base}),
                AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": prepared.snapshot_id}),
            ),
            updates=updates,
        )


def _forget(job: UpkeepJob, branch: str) -> None:
    table = load_table(job.lake, job.table)
    if table is None or branch not in table.metadata.refs:
        return
    try:
        drop_branches(table, [branch])
    except (LostRace, OutcomeUnknown):
        return  # a later expiry drops it
