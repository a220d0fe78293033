"""Purges tombstones of a keyed table that every reader has read, once they are old enough.

One DELETE on a branch prepares it, under the turn; then main moves to the branch, if it is still where the branch
began, and the floor with it. A reader whose mark is below the floor stops. A reader that was passed, by force or as
abandoned, finds what it lost in its own property. A reader that began after the deletes needs none of them, and reads
current rows below the floor.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.sizes import count_noun, shown_duration
from penstock.lake import names
from penstock.lake.data_files import Int64s, OpenDataFiles, ScanFile, explain_read_errors
from penstock.lake.head_times import head_at, read_times
from penstock.lake.merging import KIND_SETTING
from penstock.lake.planning import find_files, open_data_files
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import (
    LostRace,
    OutcomeUnknown,
    drop_refs,
    extract_state,
    load_table,
    move_main,
    start_branch,
)
from penstock.lake.upkeep.expiry import OWN_BRANCH
from penstock.lake.upkeep.job import (
    StepResult,
    UpkeepJob,
    describe_holder,
    refuse_rolled_back,
    retry_lost_races,
    run_procedure,
)
from penstock.lake.upkeep.retention import describe_losses, find_holder, format_losses

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "tombstones"
#: the kind of the snapshot, in its summary
KIND = "purge"


@dataclass(frozen=True)
class Tombstones:
    """The tombstones that may be removed."""

    #: their numbers, sorted
    numbers: Int64s
    #: the reader that keeps others from being removed
    holder: ReaderMark | None

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def last(self) -> int:
        return int(self.numbers[-1]) if len(self.numbers) else 0

    def count_losses(self, state: TableState) -> dict[ReaderMark, int]:
        """For each reader, how many of them it has not read."""
        return {
            reader: self.count - int(np.searchsorted(self.numbers, reader.mark, side="right"))
            for reader in state.readers()
            if reader.mark < self.last
        }


def purge(job: UpkeepJob) -> list[StepResult]:
    """Remove tombstones that are old enough; nothing on a log, where they are history."""
    table, state = job.load()
    if not state.keyed or names.DELETED not in table.schema().column_names:
        return []
    age = shown_duration(job.options.tombstones.age)
    found = find_tombstones(job, table, state)
    more = f"{describe_holder(found.holder, job.now)}{describe_losses(found.count_losses(state))}"
    if not found.count:
        return [StepResult(STEP, f"none older than {age} to remove{more}", {"tombstones": 0})]
    verb = "would remove" if job.dry_run else "removed"
    if not job.dry_run:
        # A DELETE that merges kept undoing would cost more than the landings that wait for it.
        found = retry_lost_races(job, STEP, partial(_purge_once, job), races_before_turn=0)
    text = f"{verb} {count_noun(found.count, 'tombstone')} older than {age}{more}"
    return [StepResult(STEP, text, {"tombstones": found.count})]


def find_tombstones(job: UpkeepJob, table: Table, state: TableState) -> Tombstones:
    """Find tombstones that are old enough and that every reader has read, from the files' own columns."""
    old = head_at(read_times(state), job.now - job.options.tombstones.age)
    holder = find_holder(job, state, old)
    upto = min(old, holder.mark) if holder else old
    numbers = [np.empty(0, np.int64)]
    with open_data_files(table) as files:
        for scan_file in find_files(table, table.metadata.current_snapshot_id, 0, upto):
            numbers += _read_tombstones(files, scan_file, upto)
    return Tombstones(np.sort(np.concatenate(numbers)), holder)


def _read_tombstones(files: OpenDataFiles, scan_file: ScanFile, upto: int) -> list[Int64s]:
    """Read the numbers of a file's live tombstones; only row groups that have some are read."""
    file = files.file(scan_file.path)
    if names.DELETED not in file.schema_arrow.names:
        return []
    columns = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    column = columns.index(names.DELETED)
    found = []
    for group in files.row_groups(scan_file, 0, upto):
        statistics = file.metadata.row_group(group.group).column(column).statistics
        if statistics is not None and statistics.has_min_max and not statistics.max:
            continue
        numbers, mask = files.select(group, 0, upto)
        with explain_read_errors(scan_file.path):
            marks = files.file(scan_file.path).read_row_group(group.group, columns=[names.DELETED]).column(0)
        found.append(numbers[mask & marks.fill_null(False).to_numpy()])
    return found


def _purge_once(job: UpkeepJob, table: Table, state: TableState) -> Tombstones:
    """Delete on a branch, then move main to it, with what readers lose."""
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        raise job.failed("other programs wrote rows that have no numbers yet", "run the upkeep again")
    found = find_tombstones(job, table, state)
    base = table.metadata.current_snapshot_id
    if not found.count or base is None:
        return found
    branch = f"{OWN_BRANCH}_{job.owner.rpartition('-')[2]}"
    start_branch(table, branch, base)
    try:
        at = f"{job.lake.spark_table(job.table)}.branch_{branch}"
        sql = f"delete from {at} where {names.DELETED} and {names.SEQ} <= {found.last}"  # noqa: S608 (names are ours)
        run_procedure(job, sql, {KIND_SETTING: KIND})
        job.probe.at("lake.purge_prepared")
        _swap(job, state, branch, base, found)
    except BaseException:
        _drop_branch(job, branch)
        raise
    job.probe.at("lake.purged")
    return found


def _swap(job: UpkeepJob, state: TableState, branch: str, base: int, found: Tombstones) -> None:
    table = load_table(job.lake, job.table)
    if table is None or str(table.metadata.table_uuid) != state.uuid:
        raise LostRace(f"the branch {branch} is gone")
    move_main(
        table,
        branch,
        base=base,
        kind=KIND,
        # As it is now: a landing that was rolled back has handed out numbers all the same.
        head=extract_state(table).head,
        properties=lambda new: {
            names.FLOOR: str(max(state.floor, found.last)),
            names.INSPECTED: new.inspected,
            **format_losses(found.count_losses(state)),
        },
    )


def _drop_branch(job: UpkeepJob, branch: str) -> None:
    table = load_table(job.lake, job.table)
    if table is not None and branch in table.metadata.refs:
        with contextlib.suppress(LostRace, OutcomeUnknown):  # a later expiry drops it
            drop_refs(table, [branch])
