"""Mistakes one could make in the lake's landing, chain and recovery, each made on purpose in the real code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId

from penstock.errors import CommitUnclear
from penstock.lake import landing, names, recovery, tables
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.table_state import TableState
from penstock.lake.tables import NewSnapshot
from penstock.sinks.lake import leftovers
from penstock.sinks.lake.sink import LakeSink
from tests.engine.mutants import Mutant, patched

LAKE_MUTANTS: dict[str, Mutant] = {}


def mutant(name: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    def register(make: Callable[[], Iterator[None]]) -> None:
        LAKE_MUTANTS[name] = contextmanager(make)

    return register


@mutant("PyIceberg's retries are left on: a conflicting append is put on top of what came first")
def _() -> Iterator[None]:
    load = tables.load_table

    def with_retries(place: Any, table: str) -> Any:
        loaded = load(place, table)
        if loaded is not None:
            loaded.metadata.properties["commit.retry.num-retries"] = "4"
            loaded.metadata.properties["commit.retry.min-wait-ms"] = "1"
        return loaded

    with patched((landing, "load_table", with_retries)):
        yield


@mutant("a slice without rows is a change of properties alone")
def _() -> Iterator[None]:
    append = Landing._append

    def without_snapshot(self: Landing, table: Any, state: TableState, landed: StagedSlice) -> NewSnapshot:
        if landed.files or state.main is None:
            return append(self, table, state, landed)
        planted = NewSnapshot(state.main.id, state.main.sequence)
        properties = self.properties(state, landed, planted)
        table.transaction().set_properties(properties).commit_transaction()
        return planted

    with patched((Landing, "_append", without_snapshot)):
        yield


@mutant("committed again without new numbers")
def _() -> Iterator[None]:
    with patched((StagedSlice, "begin_at", lambda self, start: None)):
        yield


@mutant("a landing does not ask the chain")
def _() -> Iterator[None]:
    with patched((Landing, "must_follow", lambda self, state: None)):
        yield


class _FromRows(TableState):
    """A standing whose head is the highest number that rows have."""

    @property
    def head(self) -> int:
        at: Any = self.__dict__["table"]
        return max(at.scan().to_arrow().column(names.SEQ).to_pylist(), default=0)


@mutant("the head is the highest number that rows have")
def _() -> Iterator[None]:
    extract_state = tables.extract_state

    def from_rows(table: Any) -> TableState:
        made = _FromRows(extract_state(table).metadata)
        made.__dict__["table"] = table
        return made

    with patched(*[(module, "extract_state", from_rows) for module in (tables, landing, recovery)]):
        yield


@mutant("a chain that main has passed by is believed")
def _() -> Iterator[None]:
    with patched((TableState, "stale", lambda self, link: None)):
        yield


@mutant("recover starts the numbers from what main shows")
def _() -> Iterator[None]:
    def lower(table: Any, *, kind: str, head: int, **more: Any) -> NewSnapshot:
        shown = max(table.scan().to_arrow().column(names.SEQ).to_pylist(), default=0)
        return tables.commit_snapshot(table, kind=kind, head=shown, **more)

    with patched((recovery, "commit_snapshot", lower)):
        yield


@mutant("recover leaves the chain as it is")
def _() -> Iterator[None]:
    with patched((LakeSink, "recover", lambda self, stream: ())):
        yield


@mutant("the snapshot is not asserted, nor its place in the sequence")
def _() -> Iterator[None]:
    """Iceberg refuses a stale append by its sequence number too: whoever leaves out one must leave out both."""
    real = SqlCatalog.commit_table

    def unasserted(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
        now = self.load_table(table.name()).metadata.last_sequence_number
        changed = []
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                later = update.snapshot.model_copy(update={"sequence_number": now + 1})
                changed.append(AddSnapshotUpdate(snapshot=later))
            else:
                changed.append(update)
        kept = tuple(each for each in requirements if not isinstance(each, AssertRefSnapshotId))
        return real(self, table, kept, tuple(changed))

    with patched((SqlCatalog, "commit_table", unasserted)):
        yield


@mutant("a lost race is taken for a landing")
def _() -> Iterator[None]:
    once = Landing._once

    def taken(self: Landing, landed: StagedSlice, commit: Any, *, hurry: bool) -> bool:
        once(self, landed, commit, hurry=hurry)
        return True

    with patched((Landing, "_once", taken)):
        yield


@mutant("what was put aside is deleted on an unknown outcome")
def _() -> Iterator[None]:
    commit = LakeSink.commit

    def tidy(self: LakeSink, slice_: Any, attempt: str, receipts: Sequence[Any]) -> None:
        from penstock.lake.writing import decode_files

        try:
            commit(self, slice_, attempt, receipts)
        except CommitUnclear:
            for file in [file for receipt in receipts for file in decode_files(receipt)]:
                path = file.file_path.removeprefix("file://")
                if os.path.exists(path):
                    os.unlink(path)
            raise

    with patched((LakeSink, "commit", tidy)):
        yield


@mutant("a sweep does not look which attempt has landed")
def _() -> Iterator[None]:
    with patched((leftovers, "_attempts", lambda state, pipeline, stream, held: {"nobody"})):
        yield
