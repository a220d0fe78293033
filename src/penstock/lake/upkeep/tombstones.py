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
from penstock.lake.landing import inspected
from penstock.lake.merging import KIND_SETTING, drop_branches
from penstock.lake.pieces import Piece
from penstock.lake.planning import pieces, shelf_of
from penstock.lake.shelf import Shelf, reading
from penstock.lake.standing import ReaderMark, Standing
from penstock.lake.tables import LostRace, Planted, Unclear, load, translated
from penstock.lake.times import head_at, known
from penstock.lake.upkeep.expiry import OWN_BRANCH, must_be_whole
from penstock.lake.upkeep.losses import noted, told
from penstock.lake.upkeep.procedures import Conflict, ask
from penstock.lake.upkeep.racing import TRIES, turn
from penstock.lake.upkeep.work import Done, Work, counted, held_back

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


def purge(work: Work) -> list[Done]:
    """Remove tombstones that are old enough; nothing on a log, where they are history."""
    table, standing = work.loaded()
    if standing.mode != "merge" or names.DELETED not in table.schema().column_names:
        return []
    found = due(work, table, standing)
    held = f"; held back: {held_back(found.holder, work.now)}" if found.holder else ""
    age = shown_duration(work.options.tombstones.age)
    facts = {"tombstones": found.count}
    if not found.count:
        return [Done(STEP, f"none older than {age} to remove{held}", facts)]
    losses = lost_by(standing, found)
    lost = "".join(f"; {line}" for line in told(losses))
    what = f"{counted(found.count, 'tombstone')} older than {age}"
    if work.dry_run:
        return [Done(STEP, f"would remove {what}{held}{lost}", facts)]
    for _ in range(TRIES):
        try:
            with turn(work):
                found = _purged(work, *work.loaded())
            break
        except LostRace:
            work.probe.at("lake.upkeep_lost_race")
        except Unclear as error:
            raise work.unclear(error) from error
    else:
        raise work.failed(f"other writers came first {TRIES} times", "run the upkeep again when fewer are at work")
    what = f"{counted(found.count, 'tombstone')} older than {age}"
    facts = {"tombstones": found.count}
    return [Done(STEP, f"removed {what}{held}{lost}", facts)]


def due(work: Work, table: Table, standing: Standing) -> Found:
    """Tombstones that are old enough and that every reader has seen, from the files' own columns."""
    old = head_at(known(standing), work.now - work.options.tombstones.age)
    slowest = standing.slowest()
    holder = slowest if slowest is not None and slowest.mark < old and not work.force else None
    upto = min(old, holder.mark) if holder else old
    parts = []
    with shelf_of(table) as shelf:
        for piece in pieces(table, table.metadata.current_snapshot_id, 0, upto):
            parts.append(_tombstones(shelf, piece, upto))
    numbers = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    return Found(numbers, holder)


def _tombstones(shelf: Shelf, piece: Piece, upto: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of a file's live tombstones; only row groups that have some are read."""
    found = [np.empty(0, np.int64)]
    file = shelf.file(piece.path)
    if names.DELETED not in file.schema_arrow.names:
        return found[0]
    columns = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    column = columns.index(names.DELETED)
    for unit in shelf.units(piece, 0, upto):
        statistics = file.metadata.row_group(unit.group).column(column).statistics
        if statistics is not None and statistics.has_min_max and not statistics.max:
            continue
        numbers, mask = shelf.selected(unit, 0, upto)
        with reading(piece.path):
            marks = shelf.file(piece.path).read_row_group(unit.group, columns=[names.DELETED]).column(0)
        dead = marks.fill_null(False).to_numpy()
        found.append(numbers[mask & dead])
    return np.concatenate(found)


def lost_by(standing: Standing, found: Found) -> dict[ReaderMark, int]:
    """For each reader, how many of them it has not seen."""
    return {
        reader: found.count - int(np.searchsorted(found.numbers, reader.mark, side="right"))
        for reader in standing.readers()
        if reader.mark < found.last
    }


def _purged(work: Work, table: Table, standing: Standing) -> Found:
    """Under the turn: delete on a branch, then main := branch, with what readers lose."""
    must_be_whole(work.name, standing)
    if not standing.orderly:
        raise work.failed("others have written meanwhile, and their rows have no place yet", "run the upkeep again")
    found = due(work, table, standing)
    base = table.metadata.current_snapshot_id
    if not found.count or base is None:
        return found
    branch = f"{OWN_BRANCH}_{work.owner.rpartition('-')[2]}"
    with translated():
        if branch in table.metadata.refs:
            table.manage_snapshots().remove_branch(branch).commit()
        table.manage_snapshots().create_branch(base, branch).commit()
    try:
        _delete(work, branch, found.last)
        work.probe.at("lake.purge_prepared")
        _swap(work, standing, branch, base, found)
    except BaseException:
        _forget(work, branch)
        raise
    work.probe.at("lake.purged")
    return found


def _delete(work: Work, branch: str, upto: int) -> None:
    at = f"{work.place.spark_table(work.table)}.branch_{branch}"
    sql = f"delete from {at} where {names.DELETED} and {names.SEQ} <= {upto}"  # noqa: S608 (names are ours)
    try:
        ask(work, sql, {KIND_SETTING: KIND})
    except Conflict as error:
        raise LostRace(str(error)) from error


def _swap(work: Work, standing: Standing, branch: str, base: int, found: Found) -> None:
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    table = load(work.place, work.table)
    prepared = table.metadata.snapshot_by_name(branch) if table else None
    if table is None or prepared is None or str(table.metadata.table_uuid) != standing.uuid:
        raise LostRace(f"the branch {branch} is gone")
    with translated():
        # An empty snapshot on top tells what it was for: a DELETE that drops whole files says nothing of us.
        producer = table.transaction().update_snapshot(branch=branch).fast_append()
        planted = Planted(producer.snapshot_id, table.metadata.next_sequence_number())
        producer.snapshot_properties = {names.KIND: KIND, names.HEAD: str(standing.head)}
        (added, *_), _ = producer._commit()
        properties = {
            names.FLOOR: str(max(standing.floor, found.last)),
            names.INSPECTED: inspected(planted),
            **noted(lost_by(standing, found)),
        }
        updates: tuple[Any, ...] = (
            added,
            SetSnapshotRefUpdate.model_validate(
                {"ref-name": "main", "type": "branch", "snapshot-id": planted.snapshot}
            ),
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


def _forget(work: Work, branch: str) -> None:
    table = load(work.place, work.table)
    if table is None or branch not in table.metadata.refs:
        return
    try:
        drop_branches(table, [branch])
    except (LostRace, Unclear):
        return  # a later expiry drops it
