"""Tables through PyIceberg: loading, making, and the one conditional commit that everything else is built on.

Imported only once a table must be written or read; `peek` is for looking.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.bucket import is_occupied
from penstock.lake.lake import Lake
from penstock.lake.table_state import TableState

#: how a table of ours is written by anyone
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
    # The order is told by the bounds of one column, wherever it stands among many.
    f"write.metadata.metrics.column.{names.SEQ}": "full",
}

#: looks at a catalog whose document is removed, by those who commit meanwhile, before it can be read
_LOOKS = 5

# PyIceberg logs that it could not remove an old document where another process just did: no news for a user.
logging.getLogger("pyiceberg").addHandler(logging.NullHandler())

_catalogs: dict[Any, Catalog] = {}


def _itself(entry: Any, _memo: Any) -> Any:
    return entry


# A commit by PyIceberg copies the table's whole metadata fifteen times, and copying its entries one by one takes longer
# than all else in a landing (21 ms of CPU at 20 snapshots, 487 at 700). They are frozen: a copy may hold the same ones.
for _frozen in (Snapshot, SnapshotLogEntry, MetadataLogEntry):
    setattr(_frozen, "__deepcopy__", _itself)  # noqa: B010 (mypy lets no method be assigned)


#: what Spark says of a commit that others' commits have undone
_UNDONE = ("conflicted with another concurrent", "CommitFailedException", "ValidationException")


def is_lost_race(said: str) -> bool:
    """Whether a failure of Spark's is a race that it lost: nothing of ours happened."""
    return any(sign in said for sign in _UNDONE)


class LostRace(Exception):
    """Someone else committed first: nothing of ours happened."""


class OutcomeUnknown(Exception):
    """The answer to a commit was lost: only the table can tell."""


def open_catalog(lake: Lake) -> Catalog:
    """This process's one catalog of a place."""
    key = _key(lake)
    if key not in _catalogs:
        _catalogs[key] = lake.catalog()
    return _catalogs[key]


def _key(lake: Lake) -> Any:
    return (lake.type, lake.name, lake.uri, lake.warehouse, tuple(sorted(lake.properties.items())))


def load_table(lake: Lake, table: str) -> Table | None:
    """A table as it is now; None: there is none. PyIceberg does not try a conflicting commit on it again."""
    if lake.is_new:
        return None
    for look in range(_LOOKS):
        try:
            loaded = open_catalog(lake).load_table(lake.identifier(table))
            break
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as error:
            # Those who commit meanwhile remove old documents; one that stays away is lost.
            if look == _LOOKS - 1:
                raise lake.unreachable(error) from error
        except (SQLAlchemyError, RESTError, OSError) as error:
            raise lake.unreachable(error) from error
    # PyIceberg would put a conflicting append on top of what came first, and so defeat the assertion. On this handle
    # alone: as a property of the table it would break compaction.
    loaded.metadata.properties["commit.retry.num-retries"] = "0"
    return loaded


def list_through_pyiceberg(lake: Lake) -> list[str]:
    """The tables of the place's namespace."""
    if lake.is_new:
        return []
    try:
        return sorted(identifier[-1] for identifier in open_catalog(lake).list_tables(lake.namespace))
    except NoSuchNamespaceError:
        return []
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise lake.unreachable(error) from error


def extract_state(table: Table) -> TableState:
    """The same view as `peek` gives, of a table that is loaded."""
    return TableState(json.loads(table.metadata.model_dump_json(by_alias=True)))


def create_table(
    lake: Lake,
    table: str,
    schema: Schema,
    *,
    spec: PartitionSpec,
    order: SortOrder,
    properties: Mapping[str, str],
) -> None:
    """Make a table, unless someone just did.

    It never shares a folder with another table (one that was renamed, say): the sweep of leftovers and orphans would
    take that one's files for its own.
    """
    at = open_catalog(lake)
    location = f"{lake.warehouse}/{lake.namespace}/{table}"
    if is_occupied(lake, location):
        location += f"-{uuid.uuid4().hex[:8]}"
    with contextlib.suppress(IntegrityError):  # another process made it meanwhile
        at.create_namespace_if_not_exists(lake.namespace)
    try:
        at.create_table(
            lake.identifier(table),
            schema=schema,
            partition_spec=spec,
            sort_order=order,
            location=location,
            properties={**DEFAULTS, **properties},
        )
    except TableAlreadyExistsError:
        return


@dataclass(frozen=True)
class NewSnapshot:
    """The snapshot that a commit is about to make."""

    snapshot: int
    sequence: int


#: what a commit adds to properties or summary, once it knows its snapshot
Additions = Callable[[NewSnapshot], Mapping[str, str]]


def fixed(additions: Mapping[str, str]) -> Additions:
    """Additions that do not depend on the snapshot."""

    def same(_: NewSnapshot) -> Mapping[str, str]:
        return additions

    return same


NOTHING = fixed({})


def commit_snapshot(
    table: Table,
    *,
    kind: str,
    head: int,
    properties: Additions = NOTHING,
    summary: Additions = NOTHING,
    added: Sequence[DataFile] = (),
    removed: Sequence[DataFile] = (),
    unset: Sequence[str] = (),
) -> NewSnapshot:
    """One snapshot on main with files, summary and properties, only if main is still what `table` was loaded with.

    LostRace if it is not. Also with no file at all: Iceberg can assert snapshots, not properties.
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
        if unset:
            transaction.remove_properties(*unset)
        transaction.commit_transaction()
    return new


class translate_commit_errors:
    """What PyIceberg raises around a commit, as LostRace or Unclear."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, find_foreign_rows: object
    ) -> None:
        if isinstance(error, CommitStateUnknownException):
            raise OutcomeUnknown(_line(error)) from error
        # After a rollback the format's own sequence numbers refuse a stale commit, with a ValueError; so does PyIceberg
        # if a snapshot that a branch is to begin at, or that is to be expired, has expired meanwhile.
        if isinstance(error, CommitFailedException) or (
            isinstance(error, ValueError)
            and any(said in str(error) for said in ("sequence number", "unknown snapshot", "Snapshot with snapshot id"))
        ):
            raise LostRace(_line(error)) from error
        # PyIceberg cannot remove a property that someone else has just removed: a turn, which needs no snapshot.
        if isinstance(error, KeyError) and error.args == (names.TURN,):
            raise LostRace(f"{names.TURN} was given back meanwhile") from error
        if isinstance(error, SQLAlchemyError | RESTError | OSError):
            raise OutcomeUnknown(f"{type(error).__name__}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def archive_table(lake: Lake, table: str, pipeline: str, stream: str, label: str) -> Sequence[str]:
    """Rename the table, in one step of the catalog; says its new name and which readers stop."""
    loaded = load_table(lake, table)
    if loaded is None:
        return []
    state = extract_state(loaded)
    links = state.links()
    others = sorted(f"{about[0]}/{about[1]}" for about in links if about != (pipeline, stream))
    if (pipeline, stream) not in links or others:
        why = f"{others[0]} lands in it too" if others else "this stream has never landed in it"
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
        return []  # someone has dropped or renamed it meanwhile
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise lake.unreachable(error) from error
    lines = [f"the table {lake.namespace}.{table} is {lake.namespace}.{new} now, with all its rows and snapshots"]
    for reader in state.readers():
        lines.append(
            f"pipeline {reader.pipeline} reads that table as {reader.stream}: it stops at the new one; to let it read "
            f"that from its beginning, reset it: penstock state reset FILE --stream {reader.stream}, with its own file"
        )
    return lines
