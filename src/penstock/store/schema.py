"""The store's tables at HEAD, as a new store gets them. `migrations` brings older stores here.

A new column goes to the end of its table, where a migration puts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    and_,
)
from sqlalchemy.types import TypeDecorator

from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Seal

#: every revision, oldest first; kept here because reading it from Alembic would cost its import at each start
REVISIONS = ("0006",)
HEAD = REVISIONS[-1]
#: revisions of penstock before its first release, from which no migration leads here
ABANDONED = ("0001", "0002", "0003", "0004", "0005")
#: Alembic's version table; not its default name, which a database of another program may well have
REVISION_TABLE = "revision"
#: the schema that holds the tables in Postgres
SCHEMA = "penstock"
#: "pens": identifies a SQLite file as ours
APPLICATION_ID = 0x70656E73

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A timestamp in UTC, as whole microseconds since 1970: it sorts, and comes back exactly."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: object) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any | None, dialect: object) -> datetime | None:
        return None if value is None else _EPOCH + value * _MICROSECOND


class Encoded(TypeDecorator[Any]):
    """A value of `core` that is stored as text."""

    impl = Text
    cache_ok = True

    def __init__(self, encode: Callable[[Any], str], decode: Callable[[str], Any]) -> None:
        super().__init__()
        self.encode, self.decode = encode, decode

    def process_bind_param(self, value: Any | None, dialect: object) -> str | None:
        return None if value is None else self.encode(value)

    def process_result_value(self, value: str | None, dialect: object) -> Any | None:
        return None if value is None else self.decode(value)


MARK = Encoded(lambda mark: mark.text, Mark)
OUTCOME = Encoded(lambda outcome: json.dumps(outcome.document()), lambda text: Outcome.read(json.loads(text)))
SEAL = Encoded(lambda seal: seal.text, Seal.read)

# Constraints have names, because a later migration can only drop what it can name.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *columns: str | Column[Any], key: int, parent: str | None = None) -> Table:
    """A table; a column given by its name alone is a string that is not NULL.

    The first `key` columns are the primary key. `parent` is the table whose whole key its first columns refer to.
    """
    made = [Column(each, Text, nullable=False) if isinstance(each, str) else each for each in columns]
    constraints: list[Any] = [PrimaryKeyConstraint(*(column.name for column in made[:key]))]
    if parent is not None:
        theirs = [column.name for column in metadata.tables[parent].primary_key]
        constraints.append(ForeignKeyConstraint(theirs, [f"{parent}.{column}" for column in theirs]))
    return Table(name, metadata, *made, *constraints)


def _required(name: str, kind: Any = BigInteger, default: Any = None) -> Column[Any]:
    """A column that is not NULL: a number, unless another type is given."""
    return Column(name, kind, nullable=False, default=default)


def in_stream(table: Table, pipeline: str, stream: str) -> ColumnElement[bool]:
    """The condition for the rows of one stream."""
    return and_(table.c.pipeline == pipeline, table.c.stream == stream)


#: about the store itself: which penstock wrote it
meta = _table("meta", "name", "value", key=1)

#: one row per pipeline, never deleted: the epoch must keep growing
leases = _table(
    "leases",
    "pipeline",
    Column("token", Text),  # NULL: free
    _required("host", Text, ""),
    _required("pid", default=0),
    _required("boot", Text, ""),
    _required("started", Text, ""),
    _required("epoch", default=0),
    _required("heartbeat", Instant),
    _required("expires", Instant),
    key=1,
)

#: how far each stream is
streams = _table(
    "streams",
    "pipeline",
    "stream",
    _required("number", default=0),  # 0: no slice is done
    Column("slice_id", Text),
    Column("mark", MARK),
    Column("content", Text),  # its hash, as in every table but `contents`
    _required("version", default=0),
    _required("rows", default=0),
    _required("bytes", default=0),
    Column("outcome", OUTCOME),  # NULL: the sink does not count rows by outcome
    _required("last_rows", default=0),
    Column("moved_at", Instant),
    Column("intent", Text),  # the id of the open slice
    _required("reset_wanted", Boolean, default=False),
    Column("stopped", Text),
    Column("compared", Text),  # where the search for deleted rows goes on; NULL: at the first key
    key=2,
    parent="leases",
)

#: the contents of slices, each stored once by its hash: a content is large and seldom changes
contents = _table("contents", "pipeline", "stream", "hash", "content", key=3, parent="streams")

#: the open slice of each stream; one that is done or dropped is in the history
intents = _table(
    "intents",
    "pipeline",
    "stream",
    "id",
    _required("number"),
    "previous",
    "kind",
    Column("after", MARK),
    Column("upto", MARK),
    "content",
    "plan",
    "spool",  # empty: it was not gathered
    Column("seal", SEAL),  # NULL: the staged data is not sealed
    _required("intended_at", Instant),
    "run",
    _required("epoch"),
    key=2,
    parent="streams",
)

#: changes of a mark, the oldest of them removed; see core.history
history = _table(
    "history",
    "pipeline",
    "stream",
    _required("version"),
    _required("at", Instant),
    "reason",
    _required("number"),
    Column("slice_id", Text),
    Column("mark", MARK),
    Column("content", Text),
    _required("rows"),
    _required("bytes"),
    Column("outcome", OUTCOME),  # as in streams, of this change alone
    _required("total_rows"),  # as in streams, after this change
    _required("total_bytes"),
    Column("total_outcome", OUTCOME),
    Column("run", Text),
    key=3,
    parent="streams",
)

#: executions, numbered within their pipeline, the oldest of them removed; see core.history
runs = _table(
    "runs",
    "pipeline",
    Column("number", Integer, nullable=False, autoincrement=False),
    "id",
    _required("started", Instant),
    Column("ended", Instant),
    "status",
    _required("has_more", Boolean),
    Column("continues", Text),
    "totals",  # JSON
    "verb",  # run, reset, rewind, undo, recover, migrate, repair
    key=2,
    parent="leases",
)
runs.append_constraint(UniqueConstraint("pipeline", "id"))

#: the progress of each stream, from the newest run that reported it
progress = _table("progress", "pipeline", "stream", "run", "progress", key=2, parent="leases")
Index(None, progress.c.pipeline, progress.c.run)

# The next three are for people who ask later. They are written without the lease, also by runs that never took it, so
# they refer to no other table.

#: the last error of each stream; of the pipeline as a whole where `stream` is empty
failures = _table(
    "failures",
    "pipeline",
    "stream",
    "what",
    "safe",
    "next_step",
    _required("at", Instant),
    _required("since", Instant),
    _required("times"),  # since its last success
    key=2,
)

#: when a run last looked at all streams, or at the selection in `streams`, a JSON list
looks = _table("looks", "pipeline", "streams", _required("at", Instant), key=2)

#: runs by day in UTC, YYYY-MM-DD
days = _table(
    "days",
    "pipeline",
    "day",
    *map(_required, ("runs", "idle", "failed", "rows", "bytes")),
    _required("last", Instant),
    key=2,
)
