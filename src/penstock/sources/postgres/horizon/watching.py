"""What the server shows of others at work: since when they are, what they lock, and who they are. Asks only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.ranges import Key
from penstock.links.postgres.connection import READER_SUFFIX, Session
from penstock.links.postgres.literals import load_statement, to_text, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.catalog import ROOM
from penstock.sources.postgres.content import TableContent

#: the type of moments
MOMENT = "timestamp with time zone"
#: how the id of a prepared transaction begins, which has no process
PREPARED = "-1/"
#: as much of a query is shown
QUERY = 120

_DIGITS = re.compile(r"\((\d)\)")
#: texts in a query may be anyone's data, or a password
_TEXTS = re.compile(r"""'(?:[^']|'')*(?:'|$)|\$(\w*)\$.*?(?:\$\1\$|$)""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A transaction that keeps rows from being read; what the server hides is None."""

    pid: int | None
    user: str | None
    application: str | None
    state: str | None
    query: str | None
    #: of a prepared transaction
    gid: str | None
    #: how long it has been open, as far as anyone knows
    seconds: float | None
    #: it does not show its beginning: the seconds count from when it was first met
    at_least: bool = False

    def words(self) -> str:
        age = f" for {span(self.seconds)}" if self.seconds is not None and not self.at_least else ""
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
            lasting = f", open for at least {span(met)}" if met is not None and met >= 1 else ""
            return f"{process}, in a transaction{age} that the server does not show{lasting}"
        doing = f"idle in a transaction{age}, last with" if self.state.startswith("idle") else f"in a transaction{age}:"
        query = one_line(self.query or "")
        return f"{process}, {doing} {query}" if query else f"{process}, {doing.rstrip(':').removesuffix(', last with')}"

    @property
    def remedy(self) -> str:
        """What ends it, on the operator's word."""
        if self.gid is not None:
            gid = to_text(sql.Literal(self.gid))
            return f"end it with `COMMIT PREPARED {gid}` or `ROLLBACK PREPARED {gid}`"
        return f"end that transaction, by force with `SELECT pg_terminate_backend({self.pid})`"


@dataclass(frozen=True, slots=True)
class Scan:
    """The others at work, and what follows for a stream that is ordered by time."""

    #: safe at once, and safe once all who began before the moment must have shown themselves; strictly below
    sure: str
    full: str
    #: whether the highest row lies below each
    covered: bool
    reached: bool
    #: what bounds `full`: a transaction, lag, the run's own beginning, or the cursor's precision
    by: str
    #: the highest row lies ahead of the server's clock
    ahead: bool
    #: the server's clock is behind what was certified before
    set_back: bool
    #: sessions of others, and how many of them the server hides
    others: int
    hidden: int
    #: processes that do not show since when they are in a transaction
    unseen: Sequence[int]
    #: there may be prepared transactions
    prepares: bool
    blocker: Blocker | None


def scan(
    session: Session,
    stream: str,
    content: TableContent,
    top: Key,
    *,
    now: str,
    moment: str,
    margin: float,
    lag: float,
    proven: bool,
    before: str | None = None,
) -> Scan:
    """Look at everyone's activity. `moment` is before this look, `now` when the highest row was seen.

    `before` is what was certified by an earlier run.
    """
    type_ = content.key[0].type
    digits = _DIGITS.search(type_)
    query = load_statement(ROOM, "activity").format(
        reads=sql.Literal(READER_SUFFIX),
        moment=typed_literal(moment, MOMENT),
        now=typed_literal(now, MOMENT),
        before=typed_literal(before, MOMENT) if before is not None else sql.NULL,
        top=typed_literal(top[0], without_modifier(type_)),
        proven=sql.Literal(proven),
        lag=_seconds(lag),
        margin=_seconds(margin),
        type=sql.SQL(type_),
        unit=_seconds(10.0 ** -int(digits[1]) if digits else 0.0),
    )
    [[said]] = session.rows(query, table=str(content.table), stream=stream)
    return Scan(**said | {"blocker": Blocker(**said["blocker"]) if said["blocker"] else None})


@dataclass(frozen=True, slots=True)
class Lock:
    """A transaction that holds locks which matter."""

    #: its virtual id; of a prepared one PREPARED and its transaction id
    id: str
    #: None: it is a prepared one
    pid: int | None
    #: it may write the table
    writes: bool
    #: it is of a session that does not show its beginning
    unseen: bool
    #: it is waited for
    waited: bool

    @property
    def prepared(self) -> bool:
        return self.pid is None


def locks(
    session: Session, stream: str, content: TableContent, *, unseen: Collection[int] = (), waited: Collection[str] = ()
) -> list[Lock]:
    """Look at everyone's locks on a table and its relatives."""
    query = load_statement(ROOM, "locks").format(
        name=sql.Literal(to_text(content.table.sql)),
        unseen=sql.Literal(list(unseen)),
        waited=sql.Literal(list(waited)),
    )
    return [Lock(*row) for row in session.rows(query, table=str(content.table), stream=stream)]


def blocker(session: Session, stream: str, found: Iterable[Lock], *, since: str) -> Blocker:
    """The oldest of those that are waited for. One that shows no beginning counts from `since`."""
    holders = list(found)
    query = load_statement(ROOM, "blocker").format(
        pids=sql.Literal([lock.pid for lock in holders if lock.pid is not None]),
        prepared=sql.Literal([lock.id for lock in holders if lock.prepared]),
        since=typed_literal(since, MOMENT),
    )
    rows = session.rows(query, table="pg_stat_activity", stream=stream)
    return Blocker(**rows[0][0]) if rows else Blocker(None, None, None, None, None, None, None)


def one_line(query: str) -> str:
    """A query as far as it is shown: without texts, which may be anyone's data."""
    text = " ".join(_TEXTS.sub("'…'", query).split())
    return text if len(text) <= QUERY else f"{text[: QUERY - 2].rstrip()} …"


def span(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 7 min`, `2 d 4 h`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 2:
        return f"{minutes * 60 + rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _seconds(number: float) -> sql.Composed:
    return sql.SQL("make_interval(secs => {})").format(sql.Literal(number))
