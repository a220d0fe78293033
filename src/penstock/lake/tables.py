"""Loads, creates and renames tables through PyIceberg, and has the conditional commits that everything is built on.

Imported only once a table must be written or read; `metadata.read_state` is enough to look at one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from penstock.core.retry import Backoff, Retry
from penstock.errors import PenstockError, StreamRefused
from penstock.lake import names
from penstock.lake.bucket import is_occupied
from penstock.lake.lake import Lake
from penstock.lake.metadata import READS
from penstock.lake.pruning import Pruning
from penstock.lake.table_state import TableState
from penstock.links.pause import iterate_tries

#: properties of every table that penstock creates, for all its writers
DEFAULTS = {
    "format-version": "2",
    "write.delete.mode": names.ON_READ,
    "write.update.mode": names.ON_READ,
    names.MERGE_MODE: names.ON_READ,
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    # Small, so that a reader can skip what it has seen.
    "write.parquet.row-group-size-bytes": str(12 << 20),
    "commit.manifest-merge.enabled": "true",
    # Small, so that a merge reads what is new and not the whole table's files again.
    "commit.manifest.target-size-bytes": str(512 << 10),
    "commit.manifest.min-count-to-merge": "30",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    **names.METRICS,
}

#: a commit that asserts what its table was loaded with, while other writers commit first
LOST_RACES = Retry(40, Backoff(0.05, 0.2))

# PyIceberg logs that it could not remove an old document which another process has just removed: of no use to a user.
logging.getLogger("pyiceberg").addHandler(logging.NullHandler())

_catalogs: dict[Any, Catalog] = {}

Made = TypeVar("Made")


# A commit by PyIceberg copies the table's whole metadata fifteen times, and copying its entries one by one takes longer
# than all else in a landing (21 ms of CPU at 20 snapshots, 487 at 700). They are frozen: a copy may hold the same ones.
for _frozen in (Snapshot, SnapshotLogEntry, MetadataLogEntry):
    setattr(_frozen, "__deepcopy__", lambda entry, _memo: entry)  # noqa: B010 (mypy lets no method be assigned)

#: parts of Spark's messages about a commit that conflicted with another
_CONFLICTS = ("conflicted with another concurrent", "CommitFailedException", "ValidationException")


def is_lost_race(said: str) -> bool:
    """Whether Spark's message is about a commit that lost a race and changed nothing."""
    return any(sign in said for sign in _CONFLICTS)


class LostRace(Exception):
    """Another writer committed first; nothing was changed."""


class OutcomeUnknown(Exception):
    """The answer to a commit was lost; only the table knows whether it happened."""


def retry_commit(attempt: Callable[[], Made], error: Callable[[str], PenstockError]) -> Made:
    """Let `attempt` load the table and commit, until no other writer commits first; `error` takes why it gives up."""
    for _ in iterate_tries(LOST_RACES):
        with contextlib.suppress(LostRace):
            return attempt()
    raise error(f"other writers committed first {LOST_RACES.tries} times")


def open_catalog(lake: Lake) -> Catalog:
    """The catalog of a lake, opened once per process."""
    key = (lake.type, lake.name, lake.uri, lake.warehouse, tuple(sorted(lake.properties.items())))
    if key not in _catalogs:
        _catalogs[key] = lake.catalog()
    return _catalogs[key]


def load_table(lake: Lake, table: str) -> Table | None:
    """Load a table as it is now; None: it does not exist. PyIceberg does not retry a conflicting commit on it."""
    if lake.is_new:
        return None
    for read in READS.attempts():
        try:
            loaded = open_catalog(lake).load_table(lake.identifier(table))
            break
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as error:
            # Concurrent commits remove old documents. One that stays missing is lost.
            if READS.is_last(read):
                raise lake.unreachable(error) from error
        except (SQLAlchemyError, RESTError, OSError) as error:
            raise lake.unreachable(error) from error
    # PyIceberg would put a conflicting append on top of what came first, and so defeat the assertion. On this handle
    # alone: as a property of the table it would break compaction.
    loaded.metadata.properties["commit.retry.num-retries"] = "0"
    return loaded


def list_through_pyiceberg(lake: Lake) -> list[str]:
    """List the tables of the lake's namespace."""
    if lake.is_new:
        return []
    try:
        return sorted(identifier[-1] for identifier in open_catalog(lake).list_tables(lake.namespace))
    except NoSuchNamespaceError:
        return []
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise lake.unreachable(error) from error


def extract_state(table: Table) -> TableState:
    """Give the state of a loaded table, as `metadata.read_state` does without PyIceberg."""
    return TableState(json.loads(table.metadata.model_dump_json(by_alias=True)))


def create_table(
    lake: Lake, table: str, schema: Schema, *, spec: PartitionSpec, order: SortOrder, properties: Mapping[str, str]
) -> None:
    """Create a table, unless another process just did.

    It never shares a folder with another table, such as a renamed one: the removal of orphans would take that table's
    files for its own.
    """
    at = open_catalog(lake)
    location = f"{lake.warehouse}/{lake.namespace}/{table}"
    if is_occupied(lake, location):
        location += f"-{uuid.uuid4().hex[:8]}"
    with contextlib.suppress(IntegrityError):  # another process created it
        at.create_namespace_if_not_exists(lake.namespace)
    with contextlib.suppress(TableAlreadyExistsError):
        at.create_table(lake.identifier(table), schema, location, spec, order, {**DEFAULTS, **properties})


@dataclass(frozen=True)
class NewSnapshot:
    """The snapshot that a commit is about to create."""

    snapshot: int
    sequence: int

    @property
    def inspected(self) -> str:
        """The property which says that every row up to this snapshot has its place in the order."""
        return format_inspected(self.snapshot, self.sequence)


def format_inspected(snapshot: int, sequence: int) -> str:
    return json.dumps({"snapshot": str(snapshot), "sequence": sequence})


#: properties or summary entries that a commit adds once it knows its snapshot
Additions = Callable[[NewSnapshot], Mapping[str, str]]


def commit_snapshot(
    table: Table,
    *,
    kind: str,
    head: int,
    properties: Additions = lambda _: {},
    summary: Additions = lambda _: {},
    added: Sequence[DataFile] = (),
    removed: Sequence[DataFile] = (),
    unset: Collection[str] = (),
) -> NewSnapshot:
    """Commit one snapshot on main with files, summary and properties, only if main is still what `table` was loaded
    with; LostRace if it is not. A snapshot is added even without files: Iceberg can assert snapshots, not properties.
    """
    with translate_commit_errors():
        transaction = table.transaction()
        update = transaction.update_snapshot()
        producer = update.overwrite() if removed else update.merge_append()
        new = NewSnapshot(producer.snapshot_id, table.metadata.next_sequence_number())
        producer.snapshot_properties = {names.KIND: kind, names.HEAD: str(head), **summary(new)}
        for file in added:
            producer.append_data_file(file)
        for file in removed:
            producer.delete_data_file(file)
        producer.commit()
        transaction.set_properties({names.HEAD: str(head), **properties(new)})
        if gone := [name for name in unset if name in table.metadata.properties]:
            transaction.remove_properties(*gone)
        transaction.commit_transaction()
    return new


def set_properties(table: Table, properties: Mapping[str, str]) -> None:
    """Set properties in a commit of their own, which asserts nothing; LostRace if another commit came first."""
    with translate_commit_errors():
        table.transaction().set_properties(dict(properties)).commit_transaction()


def start_branch(table: Table, branch: str, base: int) -> None:
    """Start a branch at a snapshot; a branch of this name that an earlier attempt left is replaced."""
    with translate_commit_errors():
        if branch in table.metadata.refs:
            table.manage_snapshots().remove_branch(branch).commit()
        table.manage_snapshots().create_branch(base, branch).commit()


def drop_refs(table: Table, refs: Iterable[str]) -> None:
    """Drop branches and tags that are no longer needed: they pin snapshots."""
    with translate_commit_errors():
        manage = table.manage_snapshots()
        for name in refs:
            tag = table.metadata.refs[name].snapshot_ref_type == SnapshotRefType.TAG
            manage = manage.remove_tag(name) if tag else manage.remove_branch(name)
        manage.commit()


@dataclass(frozen=True, slots=True)
class MovedBranch:
    """A branch that is moved together with main."""

    name: str
    #: where it goes
    snapshot: int
    #: the branch that was prepared for it, which is dropped
    prepared: str


def move_main(
    table: Table,
    branch: str,
    *,
    base: int,
    kind: str,
    head: int,
    properties: Additions,
    summary: Additions = lambda _: {},
    unset: Collection[str] = (),
    beside: MovedBranch | None = None,
) -> NewSnapshot:
    """Move main to a new empty snapshot on top of a branch, and drop the branch, only if main is still `base`.

    The empty snapshot makes the move safe: main may have been rolled back to the base by hand after another landing
    handed out the same numbers, and only the format's sequence numbers reveal that.
    """
    prepared = table.metadata.snapshot_by_name(branch)
    if prepared is None:
        raise LostRace(f"the branch {branch} is gone")
    with translate_commit_errors():
        producer = table.transaction().update_snapshot(branch=branch).fast_append()
        new = NewSnapshot(producer.snapshot_id, table.metadata.next_sequence_number())
        producer.snapshot_properties = {names.KIND: kind, names.HEAD: str(head), **summary(new)}
        (added, *_), _ = producer._commit()
        updates: list[Any] = [
            added,
            SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": new.snapshot}),
            RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),
            SetPropertiesUpdate(updates={names.HEAD: str(head), **properties(new)}),
        ]
        if beside is not None:
            to = {"ref-name": beside.name, "type": "branch", "snapshot-id": beside.snapshot}
            updates.append(SetSnapshotRefUpdate.model_validate(to))
            updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": beside.prepared}))
        if gone := [name for name in unset if name in table.metadata.properties]:
            updates.append(RemovePropertiesUpdate(removals=gone))
        _commit_updates(table, updates, main=base, **{branch: prepared.snapshot_id})
    return new


def prune(table: Table, state: TableState, pruning: Pruning, properties: Mapping[str, str] | None = None) -> None:
    """Remove snapshots from the metadata, if main is still the same; record that all rows up to it are in order."""
    main = state.main
    assert main is not None
    inspected = {names.INSPECTED: format_inspected(main.id, main.sequence)}
    updates: list[Any] = [
        SetPropertiesUpdate(updates={**inspected, **(properties or {})}),
        *(
            SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "tag", "snapshot-id": snapshot})
            for name, snapshot in pruning.tags.items()
        ),
        *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in pruning.over),
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(pruning.snapshots)}),
    ]
    with translate_commit_errors():
        _commit_updates(table, updates, main=main.id)


def _commit_updates(table: Table, updates: Sequence[Any], **refs: int) -> None:
    """Commit updates, only if it is still the same table and these branches are still at these snapshots."""
    requirements: tuple[Any, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        *(AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": at}) for ref, at in refs.items()),
    )
    table.catalog.commit_table(table, requirements=requirements, updates=tuple(updates))


@contextlib.contextmanager
def translate_commit_errors() -> Iterator[None]:
    """Raise what PyIceberg raises around a commit as LostRace or OutcomeUnknown."""
    try:
        yield
    except CommitStateUnknownException as error:
        raise OutcomeUnknown(_line(error)) from error
    except CommitFailedException as error:
        raise LostRace(_line(error)) from error
    except ValueError as error:
        # After a rollback the format's own sequence numbers refuse a stale commit, with a ValueError; so does PyIceberg
        # if a snapshot that a branch is to begin at, or that is to be expired, has expired meanwhile.
        if any(sign in str(error) for sign in ("sequence number", "unknown snapshot", "Snapshot with snapshot id")):
            raise LostRace(_line(error)) from error
        raise
    except KeyError as error:
        # PyIceberg cannot remove a property that someone else has just removed: a turn, which needs no snapshot.
        if error.args == (names.TURN,):
            raise LostRace(f"{names.TURN} was given back meanwhile") from error
        raise
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise OutcomeUnknown(f"{type(error).__name__}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def archive_table(lake: Lake, table: str, pipeline: str, stream: str, label: str) -> Sequence[str]:
    """Rename the table in one step of the catalog, so that its stream can begin again in a new one.

    Returns its new name, and which readers stop.
    """
    loaded = load_table(lake, table)
    if loaded is None:
        return []
    state = extract_state(loaded)
    links = state.links()
    others = sorted(f"{about[0]}/{about[1]}" for about in links if about != (pipeline, stream))
    if (pipeline, stream) not in links or others:
        why = f"{others[0]} lands in it too" if others else "this stream never landed in it"
        raise StreamRefused(
            f"the table {lake.namespace}.{table} cannot be renamed: {why}",
            next_step="name another table for this stream with `into`",
            pipeline=pipeline,
            stream=stream,
        )
    new = f"{table}_before_{label.lower()}"
    try:
        open_catalog(lake).rename_table(lake.identifier(table), lake.identifier(new))
    except NoSuchTableError:
        return []  # another process dropped or renamed it
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise lake.unreachable(error) from error
    lines = [f"the table {lake.namespace}.{table} is now {lake.namespace}.{new}, with all its rows and snapshots"]
    for reader in state.readers():
        lines.append(
            f"pipeline {reader.pipeline} reads the table as {reader.stream} and stops at the new one; to read the new "
            f"one from its beginning: penstock state reset FILE --stream {reader.stream}, with that pipeline's file"
        )
    return lines
