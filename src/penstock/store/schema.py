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
REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]
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
    Column("content", Text),
    Column("version", BigInteger, nullable=False, default=0),
    Column("rows", BigInteger, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("last_rows", BigInteger, nullable=False, default=0),
    Column("moved_at", Instant),
    Column("intent", Text),  # the id of the open slice
    Column("reset_wanted", Boolean, nullable=False, default=False),
    Column("stopped", Text),
    Column("outcome", Text),  # a JSON text; NULL: the sink does not look at rows
    PrimaryKeyConstraint("pipeline", "stream"),
    _of_pipeline(),
)

#: every slice that was intended: open, done or dropped
slices = Table(
    "slices",
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
    Column("status", Text, nullable=False),
    Column("intended_at", Instant, nullable=False),
    Column("done_at", Instant),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("run", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "stream", "id"),
    _of_stream(),
)
Index(None, slices.c.pipeline, slices.c.stream, slices.c.number)

#: every change of a mark
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
    Column("run", Text),
    Column("outcome", Text),  # as in streams, of this change alone
    PrimaryKeyConstraint("pipeline", "stream", "version"),
    _of_stream(),
)

#: every execution, numbered within its pipeline
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
    Column("progress", Text, nullable=False),
    PrimaryKeyConstraint("pipeline", "number"),
    UniqueConstraint("pipeline", "id"),
    _of_pipeline(),
)
