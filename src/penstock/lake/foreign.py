"""Rows that others have put into a table: each gets its place in the order before any reader may pass it.

A snapshot that is neither ours nor a compaction is inspected. Every row that it brought gets a number, whatever it
came with, unless it is a row that the same snapshot removed and that still has its own (`origins`). Rows that it
changed under their numbers, or deleted, are counted and reported, because no reader will see them as such.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.documents import Document, Json, canonical
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamStopped
from penstock.lake import names
from penstock.lake.peek import peek
from penstock.lake.place import Place
from penstock.lake.standing import GAP, UNNUMBERED, Standing
from penstock.ports import Mover, Probe

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

    from penstock.lake.accepting import Doubt
    from penstock.lake.origins import Overwrite

#: races lost before the turn is taken, and before it is left to the next run
PATIENT, TRIES = 2, 20


@dataclass(frozen=True)
class _Job:
    """One file to be written anew."""

    task: FileScanTask
    #: rows that get a number beside those without one: [begin, end) ranges of the file's live rows
    strange: Sequence[Sequence[int]] = ()
    #: every row gets one
    all: bool = False


def stamp(
    place: Place,
    table: str,
    mover: Callable[[], Mover],
    probe: Probe,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Give every row its place and describe what was done. Reads only metadata when there is nothing to do.

    `say` prints at once how far it is.
    """
    standing = peek(place, table)
    if standing is None or not standing.ours or standing.orderly:
        return []
    return _Stamping(place, table, mover, probe, say).run()


def accept(place: Place, table: str, mover: Callable[[], Mover], probe: Probe, *, dry_run: bool = False) -> list[str]:
    """On the operator's word: the same, where it can no longer be seen which rows others brought.

    Returns what was accepted, and which readers may miss rows by it. With `dry_run` nothing is changed.
    """
    standing = peek(place, table)
    if standing is None or not standing.ours or standing.orderly:
        return [f"nothing to accept: every row of {place.namespace}.{table} has its place in the order"]
    from penstock.lake.upkeep.expiry import must_be_whole

    must_be_whole(f"{place.namespace}.{table}", standing)
    return _Stamping(place, table, mover, probe, lambda _: None, accepting=True, dry_run=dry_run).run()


@dataclass(frozen=True)
class _Stamping:
    place: Place
    table: str
    mover: Callable[[], Mover]
    probe: Probe
    say: Callable[[str], None]
    #: rows whose origin nobody can see keep their numbers; else they stop
    accepting: bool = False
    dry_run: bool = False

    @property
    def _name(self) -> str:
        return f"{self.place.namespace}.{self.table}"

    def run(self) -> list[str]:
        from penstock.lake.landing import take_turn
        from penstock.lake.tables import LostRace, load, standing_of

        owner = uuid.uuid4().hex[:12]
        for lost in range(TRIES):
            loaded = load(self.place, self.table)
            if loaded is None:
                return []
            standing = standing_of(loaded)
            if standing.orderly:
                return []
            if standing.gap and not self.accepting:
                raise self._untraceable(GAP)
            try:
                if lost == PATIENT:
                    take_turn(loaded, standing, owner, by="a reader that numbers rows of other programs")
                    loaded = load(self.place, self.table) or loaded
                    standing = standing_of(loaded)
                return self._stamped(loaded, standing)
            except LostRace:
                self.probe.at("lake.stamp_lost_race")
        raise StreamFailed(
            f"rows that others put into {self._name} could not be numbered: other writers came first {TRIES} times",
            next_step="run again",
        )

    def _stamped(self, table: Table, standing: Standing) -> list[str]:
        from penstock.lake.landing import inspected
        from penstock.lake.parquet import Shape
        from penstock.lake.planning import NAME_MAPPING
        from penstock.lake.stamping import Stamper, WholeFiles, move_in_steps, remove_files, tally
        from penstock.lake.tables import LostRace, commit
        from penstock.lake.writing import decode

        jobs, overwrites, doubt = self._jobs(table, standing)
        said = [_reported(overwrite) for overwrite in overwrites]
        if doubt is not None:
            said += doubt.lines(self._name, standing)
        if self.dry_run:
            return said
        added = []
        head, count = standing.head, 0
        if jobs:
            tag = uuid.uuid4().hex[:12]
            parts = _parts(table, jobs, standing.head)
            writer = Stamper(
                pipeline="",
                stream=self.table,
                shape=Shape.of(table),
                name=f"ps-stamp-{tag}",
                places={i: (job.task.file.partition, job.task.file.spec_id) for i, job in enumerate(jobs)},
            )
            reader = WholeFiles(table.io, table.schema(), table.properties.get(NAME_MAPPING))
            receipts = move_in_steps(self.mover(), reader, writer, parts, self._say_progress)
            added = [file for receipt in receipts for file in decode(receipt)]
            count, last = tally(receipts)
            head = max(head, last)
            self.probe.at("lake.stamped")
        try:
            commit(
                table,
                kind="accept" if self.accepting else "stamp",
                head=head,
                added=added,
                removed=[job.task.file for job in jobs],
                properties=lambda planted: {
                    names.INSPECTED: inspected(planted),
                    **(doubt.remembered(standing, _now()) if doubt is not None else {}),
                },
                unset=[name for name in (names.TURN, names.STOPPED, UNNUMBERED) if name in standing.properties],
            )
        except LostRace:
            remove_files(table.io, added)
            raise
        self.probe.at("lake.stamp_landed")
        if count:
            said.append(f"gave {count} rows that others had put into {self._name} their place in the order")
        return said

    def _say_progress(self, done: int, of: int) -> None:
        self.say(f"{self._name}: {done} of {of} files rewritten, with numbers for the rows of other programs")

    def _jobs(self, table: Table, standing: Standing) -> tuple[list[_Job], Sequence[Overwrite], Doubt | None]:
        """The files that hold rows without a place of their own; what others changed or deleted; what is accepted."""
        from penstock.lake.accepting import doubt_about
        from penstock.lake.origins import Origins, Untraceable, strange_ranges, trace
        from penstock.lake.planning import piece_of, shelf_of, tasks_of

        current, seq = table.metadata.current_snapshot_id, table.schema().find_field(names.SEQ).field_id
        since = _sequence_numbers(table)
        jobs = []
        with shelf_of(table) as shelf:
            try:
                origins = trace(table, standing, shelf)
            except Untraceable as error:
                if not self.accepting:
                    raise self._untraceable(str(error)) from error
                origins = Origins()
            for task in tasks_of(table, current) if current is not None else ():
                strange = origins.strange.get(task.file.file_path)
                if strange is not None and strange.all():
                    jobs.append(_Job(task, all=True))
                elif strange is not None and strange.any():
                    dead = shelf.dead(piece_of(table, task.file, task.delete_files))
                    jobs.append(_Job(task, strange_ranges(strange, dead)))
                elif _unnumbered(task, seq) or _highest(task, seq) > standing.head:
                    jobs.append(_Job(task))
        for job in jobs:
            if job.task.file.spec_id != table.metadata.default_spec_id:
                # PyIceberg would write the new file down under the partitioning of today, whatever it holds.
                raise self._stopped(
                    f"rows without a place in the order lie in {job.task.file.file_path}, which was written under an "
                    "older partitioning of the table",
                    "rewrite such files first, in Spark SQL: call system.rewrite_data_files(table => '…', "
                    "options => map('rewrite-all', 'true')); then run again",
                )
        # As they came in: of two versions of a row the later one gets the higher number.
        jobs.sort(key=lambda job: (since[job.task.file.file_path], job.task.file.file_path))
        # A file that keeps numbers proves nothing: what it was compared with may be of unknown origin itself.
        new = {path for path, strange in origins.strange.items() if strange.all()}
        doubt = doubt_about(table, standing, new) if self.accepting else None
        return jobs, origins.overwrites, doubt

    def _untraceable(self, why: str) -> StreamStopped:
        """Said in the table too, so that those who write to it learn that nobody can read on."""
        from penstock.lake.readers import say_stopped

        say_stopped(self.place, self.table, why)
        return self._stopped(
            why,
            f"put the table back as it was before; or go on from what is there: `penstock upkeep FILE --table "
            f"{self.table} --accept-foreign` says which rows readers may not be given. `penstock upkeep` itself "
            "expires only what it has looked at",
        )

    def _stopped(self, what: str, step: str) -> StreamStopped:
        return StreamStopped(
            f"{self._name}: {what}", next_step=step, safe="Nothing was changed, and no reader has passed them."
        )


def _sequence_numbers(table: Table) -> dict[str, int]:
    """Every data file that main shows, with the sequence number of the snapshot that added it."""
    from pyiceberg.manifest import ManifestContent

    current = table.metadata.current_snapshot()
    return {
        entry.data_file.file_path: entry.sequence_number or 0
        for manifest in (current.manifests(table.io) if current else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _unnumbered(task: FileScanTask, seq: int) -> bool:
    """Whether a file has rows without a number, or with one that is never handed out, or does not say."""
    nulls = (task.file.null_value_counts or {}).get(seq)
    raw = (task.file.lower_bounds or {}).get(seq)
    return raw is None or bool(nulls) or int.from_bytes(raw, "little", signed=True) <= 0


def _highest(task: FileScanTask, seq: int) -> int:
    raw = (task.file.upper_bounds or {}).get(seq)
    return int.from_bytes(raw, "little", signed=True) if raw is not None else 0


def _parts(table: Table, jobs: Sequence[_Job], head: int) -> list[Part]:
    from penstock.lake.planning import piece_of

    parts, start = [], head + 1
    for index, job in enumerate(jobs):
        piece = piece_of(table, job.task.file, job.task.delete_files)
        strange: Json = [list(each) for each in job.strange]
        terms: Document = {
            "piece": piece.document(),
            "start": start,
            "all": job.all,
            "strange": strange,
            "head": head,
        }
        parts.append(Part(index, canonical(terms)))
        start += job.task.file.record_count
    return parts


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _reported(overwrite: Overwrite) -> str:
    snapshot = overwrite.snapshot
    return (
        f"snapshot {snapshot.id}, which penstock did not make, changed or deleted rows ({snapshot.operation}): it "
        f"removed {overwrite.removed} and wrote {overwrite.kept} of them again under their own numbers; readers do "
        "not get these changes"
    )
