"""The other transactions on the server: their start times, their locks and their owners. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.links.postgres.connection import READER_SUFFIX
from penstock.links.postgres.literals import load_statement, to_text, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.stream import PACKAGE, HighestRow, TableStream

#: the type of timestamps in queries
TIMESTAMPTZ = "timestamp with time zone"
#: prefix of the id of a prepared transaction, which has no process
PREPARED_PREFIX = "-1/"
#: a longer query is shortened in messages
MAX_QUERY_CHARACTERS = 120

_DIGITS = re.compile(r"\((\d)\)")
#: strings in a query may be private data or a password
_STRINGS = re.compile(r"""'(?:[^']|'')*(?:'|$)|\$(\w*)\$.*?(?:\$\1\$|$)""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A transaction that holds rows back; a field that the server hides is None."""

    pid: int | None
    user: str | None
    application: str | None
    state: str | None
    query: str | None
    #: of a prepared transaction
    gid: str | None
    #: how long it has been open
    seconds: float | None
    #: its start is hidden: the seconds count from when it was first seen
    at_least: bool = False

    def describe(self) -> str:
        age = f" for {format_duration(self.seconds)}" if self.seconds is not None and not self.at_least else ""
        if self.gid is not None:
            owner = f" (owner {self.user})" if self.user else ""
            return f"the prepared transaction {self.gid!r}{owner}, waiting{age}"
        if self.pid is None:
            return "a transaction that has just ended"
        about = (f"user {self.user}" if self.user else None, self.application)
        who = ", ".join(each for each in about if each)
        process = f"process {self.pid}" + (f" ({who})" if who else "")
        if self.state is None or self.state == "disabled":
            met = self.seconds if self.at_least else None
            lasting = f", open for at least {format_duration(met)}" if met is not None and met >= 1 else ""
            return f"{process}, in a transaction{age} that the server does not show{lasting}"
        doing = f"idle in a transaction{age}, last with" if self.state.startswith("idle") else f"in a transaction{age}:"
        query = shorten_query(self.query or "")
        return f"{process}, {doing} {query}" if query else f"{process}, {doing.rstrip(':').removesuffix(', last with')}"

    @property
    def remedy(self) -> str:
        """The command that ends it."""
        if self.gid is not None:
            gid = to_text(sql.Literal(self.gid))
            return f"end it with `COMMIT PREPARED {gid}` or `ROLLBACK PREPARED {gid}`"
        return f"end that transaction, for example with `SELECT pg_terminate_backend({self.pid})`"


@dataclass(frozen=True, slots=True)
class ActivityScan:
    """The other transactions, and how far they let a stream that is ordered by time be read."""

    #: rows strictly below `sure` are safe at once; rows below `full` are safe once the margin has passed
    sure: str
    full: str
    #: whether the highest row lies below each
    covered: bool
    reached: bool
    #: what limits `full`: transaction, lag, run (its start) or precision (of the cursor)
    by: str
    #: the highest row lies ahead of the server's clock
    ahead: bool
    #: the server's clock is behind the time that was certified before
    set_back: bool
    #: other sessions, and how many of them the server hides
    others: int
    hidden: int
    #: processes in a transaction whose start is hidden
    unseen: Sequence[int]
    #: there may be prepared transactions
    prepares: bool
    blocker: Blocker | None


def scan_activity(
    stream: TableStream, top: HighestRow, *, run_start: str, proven: bool, before: str | None = None
) -> ActivityScan:
    """Look at all other transactions. `before` is the time that an earlier run certified."""
    type_ = stream.content.key[0].type
    digits = _DIGITS.search(type_)
    query = load_statement(PACKAGE, "activity").format(
        reads=sql.Literal(READER_SUFFIX),
        moment=typed_literal(run_start, TIMESTAMPTZ),
        now=typed_literal(top.clock, TIMESTAMPTZ),
        before=typed_literal(before, TIMESTAMPTZ) if before is not None else sql.NULL,
        top=typed_literal(top.key[0], without_modifier(type_)),
        proven=sql.Literal(proven),
        lag=_interval(stream.horizon.lag),
        margin=_interval(stream.horizon.margin),
        type=sql.SQL(type_),
        unit=_interval(10.0 ** -int(digits[1]) if digits else 0.0),
    )
    [[scan]] = stream.rows(query)
    return ActivityScan(**scan | {"blocker": Blocker(**scan["blocker"]) if scan["blocker"] else None})


@dataclass(frozen=True, slots=True)
class Lock:
    """A transaction that writes the table, hides its start, or is waited for."""

    #: its virtual id; for a prepared one, PREPARED_PREFIX and its transaction id
    id: str
    #: None: it is prepared
    pid: int | None
    #: it may write the table
    writes: bool
    #: its session hides its start
    unseen: bool
    #: it is waited for
    waited: bool

    @property
    def prepared(self) -> bool:
        return self.pid is None


def list_locks(stream: TableStream, *, unseen: Collection[int] = (), waited: Collection[str] = ()) -> list[Lock]:
    """List the transactions that hold relevant locks on a table, its ancestors and its partitions."""
    query = load_statement(PACKAGE, "locks").format(
        name=sql.Literal(to_text(stream.content.table.sql)),
        unseen=sql.Literal(list(unseen)),
        waited=sql.Literal(list(waited)),
    )
    return [Lock(*row) for row in stream.rows(query)]


def find_blocker(stream: TableStream, holders: Sequence[Lock], *, since: str) -> Blocker:
    """Find the oldest of the transactions that are waited for. One that hides its start counts from `since`."""
    query = load_statement(PACKAGE, "blocker").format(
        pids=sql.Literal([lock.pid for lock in holders if lock.pid is not None]),
        prepared=sql.Literal([lock.id for lock in holders if lock.prepared]),
        since=typed_literal(since, TIMESTAMPTZ),
    )
    rows = stream.rows(query, "pg_stat_activity")
    return Blocker(**rows[0][0]) if rows else Blocker(None, None, None, None, None, None, None)


def shorten_query(query: str) -> str:
    """A query for messages: in one line and without strings, which may be private data."""
    text = " ".join(_STRINGS.sub("'…'", query).split())
    return text if len(text) <= MAX_QUERY_CHARACTERS else f"{text[: MAX_QUERY_CHARACTERS - 2].rstrip()} …"


def format_duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 7 min`, `2 d 4 h`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 2:
        return f"{minutes * 60 + rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _interval(seconds: float) -> sql.Composed:
    return sql.SQL("make_interval(secs => {})").format(sql.Literal(seconds))
