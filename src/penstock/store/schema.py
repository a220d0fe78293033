"""The store's tables as they are at HEAD, and as a new store gets them. How older ones become these: `migrations`.

A new column goes to the end of its table, where a migration puts it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

#: every revision, oldest first; kept here because reading it from Alembic would cost its import at each start
REVISIONS = ("0005",)
HEAD = REVISIONS[-1]
#: revisions of penstock before its first release, from which no migration leads here
ABANDONED = ("0001", "0002", "0003", "0004")
#: Alembic's version table; not its default name, which a database of another program may well have
REVISION_TABLE = "revision"
#: the schema that holds the tables in Postgres
SCHEMA = "penstock"
#: "pens": how a SQLite file says that it is ours
APPLICATION_ID = 0x70656E73

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A time in UTC, as whole microseconds since 1970: it sorts, and comes back exactly."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: object) -> int | None:
        return None if value is None else (value - EPOCH) // TICK

    def process_result_value(self, value: Any | None, dialect: object) -> datetime | None:
        return None if value is None else EPOCH + value * TICK


# Constraints have names, because a later migration can only drop what it can name.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _of_stream() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["pipeline", "stream"], ["streams.pipeline", "streams.stream"])


def _of_pipeline() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["pipeline"], ["leases.pipeline"])


#: about the store itself: which penstock wrote it
meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

#: one row per pipeline, never deleted: the epoch must keep growing
leases = Table(
    "leases",
    metadata,
    Column("pipeline", Text, primary_key=True),
    Column("token", Text),  # NULL: free
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("boot", Text, nullable=False),
    Column("started", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("heartbeat", Instant, nullable=False),
    Column("expires", Instant, nullable=False),
)

#: where each stream stands
streams = Table(
    "streams",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("number", BigInteger, nullable=False, default=0),  # 0: no slice is done
    Column("slice_id", Text),
    Column("mark", Text),
    Column("content", Text),  # its hash, as in every table but `contents`
    Column("version", BigInteger, nullable=False, default=0),
    Column("rows", BigInteger, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("outcome", Text),  # a JSON text; NULL: the sink does not look at rows
    Column("last_rows", BigInteger, nullable=False, default=0),
    Column("moved_at", Instant),
    Column("intent", Text),  # the id of the open slice
    Column("reset_wanted", Boolean, nullable=False, default=False),
    Column("stopped", Text),
    PrimaryKeyConstraint("pipeline", "stream"),
    _of_pipeline(),
)

#: what slices are made of, once by its hash: a content is large, and hardly ever another one than before
contents = Table(
    "contents",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("pipeline", "stream", "hash"),
    _of_stream(),
)

#: the open slice of each stream; one that is done or dropped is in the history
intents = Table(
    "intents",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("previous", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("after", Text),
    Column("upto", Text),
    Column("content", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("spool", Text, nullable=False),  # empty: it was not gathered
    Column("seal", Text),  # a JSON text; NULL: what was staged is not sealed
    Column("intended_at", Instant, nullable=False),
    Column("run", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "stream"),
    _of_stream(),
)

#: changes of a mark, the oldest of them removed; see core.history
history = Table(
    "history",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    Column("reason", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("slice_id", Text),
    Column("mark", Text),
    Column("content", Text),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("outcome", Text),  # as in streams, of this change alone
    Column("total_rows", BigInteger, nullable=False),  # as in streams, after this change
    Column("total_bytes", BigInteger, nullable=False),
    Column("total_outcome", Text),
    Column("run", Text),
    PrimaryKeyConstraint("pipeline", "stream", "version"),
    _of_stream(),
)

#: executions, numbered within their pipeline, the oldest of them removed; see core.history
runs = Table(
    "runs",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("started", Instant, nullable=False),
    Column("ended", Instant),
    Column("status", Text, nullable=False),
    Column("has_more", Boolean, nullable=False),
    Column("continues", Text),
    Column("totals", Text, nullable=False),  # a JSON text
    Column("verb", Text, nullable=False),  # run, reset, rewind, undo, recover, migrate
    PrimaryKeyConstraint("pipeline", "number"),
    UniqueConstraint("pipeline", "id"),
    _of_pipeline(),
)

#: each stream within the newest run that had something to report of it
progress = Table(
    "progress",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("progress", Text, nullable=False),  # a JSON text
    PrimaryKeyConstraint("pipeline", "stream"),
    _of_pipeline(),
)
Index(None, progress.c.pipeline, progress.c.run)

# The next three are for people who ask later. They are written without the lease, also by runs that never took it, so
# they refer to no other table.

#: the last error of each stream; of the pipeline as a whole where `stream` is empty
failures = Table(
    "failures",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("safe", Text, nullable=False),
    Column("next_step", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("since", Instant, nullable=False),
    Column("times", BigInteger, nullable=False),  # since its last success
    PrimaryKeyConstraint("pipeline", "stream"),
)

#: when a run last looked at all streams, or at those that it was asked for
looks = Table(
    "looks",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("streams", Text, nullable=False),  # a JSON list; empty: all
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("pipeline", "streams"),
)

#: runs by day in UTC
days = Table(
    "days",
    metadata,
    Column("pipeline", Text, nullable=False),
    Column("day", Text, nullable=False),  # YYYY-MM-DD
    Column("runs", BigInteger, nullable=False),
    Column("idle", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("last", Instant, nullable=False),
    PrimaryKeyConstraint("pipeline", "day"),
)
