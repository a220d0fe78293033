"""How far one stream may be read now: by the beginnings of open transactions, or by who held locks to write.

Nothing is ever certified that an open transaction could still come before. What cannot be certified yet becomes
pending: a place, and those who must end first. A pending place is never exchanged for a later one before it is
certified, or under a constant load none ever would be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from penstock.core.ranges import Key
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import typed_literal
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon import watching
from penstock.sources.postgres.horizon.pending import Known, Pending
from penstock.sources.postgres.horizon.proofs import Proof
from penstock.sources.postgres.horizon.watching import MOMENT, Blocker, Lock, Scan, locks
from penstock.sources.postgres.options import Horizon
from penstock.sources.postgres.plan import Top, highest

#: seconds that short transactions are given to end, and how often they are looked at
GRACE = 0.2
STEP = 0.02


@dataclass(frozen=True, slots=True)
class Began:
    """When a run first looked at the server: everything that was committed before is its to read."""

    #: by the server's clock
    moment: str
    #: by ours, a little later
    elapsed: float

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, self.elapsed + seconds - time.monotonic()))

    def past(self, seconds: float) -> bool:
        return time.monotonic() >= self.elapsed + seconds


@dataclass(frozen=True, slots=True)
class Question:
    """A stream that has something new."""

    session: Session
    stream: str
    content: TableContent
    options: Horizon
    proof: Proof
    known: Known
    #: the highest row that is visible
    top: Top
    began: Began


@dataclass(frozen=True, slots=True)
class Answer:
    """How far it may be read, and why not further."""

    #: the highest key that may be read; None: nothing may be
    key: Key | None
    #: what is certified: a time (strictly below it) or a key; None: nothing
    horizon: Key | None
    pending: Pending | None
    #: sessions that the server hides, so that nothing is proven
    hidden: int = 0
    #: the server's clock was set back since the last run
    set_back: bool = False
    #: who holds rows back
    blocker: Blocker | None = None
    #: what does, where it is no transaction: lag, ahead, precision or run; None: nothing does
    reason: str | None = None


def by_activity(q: Question) -> Answer:
    """A time: strictly below the beginning of every open transaction."""
    seen, value = _settled(q)
    waited = q.known.pending.holders if q.known.pending else ()
    found: list[Lock] = []
    if seen.unseen or seen.prepares or waited:
        found = locks(q.session, q.stream, q.content, unseen=seen.unseen, waited=waited)
    holders = [lock for lock in found if lock.unseen or (lock.prepared and lock.writes)]
    certified = _certified(q, (value,), holders, found)
    if certified.horizon == (value,):
        reached = seen.covered or (seen.reached and value == seen.full)
        key = q.top.key if reached else _below(q, value)
    else:
        key = _below(q, certified.horizon[0]) if certified.horizon else q.known.key
    pending = certified.pending
    if pending and pending != q.known.pending and key == q.known.key == _below(q, pending.value[0]):
        # No row would be released by its end: not worth a slice without rows.
        pending = q.known.pending
    answer = Answer(key, certified.horizon, pending, seen.hidden, seen.set_back)
    if key == q.top.key:
        return answer
    if certified.left:
        return _held(answer, _blocker(q, certified))
    reason: str | None = seen.by
    if seen.ahead and highest(q.session, q.stream, q.content, after=key, below=q.top.clock) is None:
        reason = "ahead"
    return _held(answer, seen.blocker if reason == "transaction" else None, reason)


def by_holders(q: Question) -> Answer:
    """A key: the highest that is visible, once everyone has ended who held a lock to write then."""
    waited = q.known.pending.holders if q.known.pending else ()
    found = locks(q.session, q.stream, q.content, waited=waited) if q.proof.lockable or waited else []
    certified = _certified(q, q.top.key, [lock for lock in found if lock.writes], found, lag=_lag(q))
    key = certified.horizon or q.known.key
    answer = Answer(key, certified.horizon, certified.pending)
    if key == q.top.key:
        return answer
    if certified.left:
        return _held(answer, _blocker(q, certified))
    return _held(answer, None, "lag" if certified.pending and certified.pending.not_before else None)


# ---------------------------------------------------------------- activity


def _settled(q: Question) -> tuple[Scan, str]:
    """The others at work, and the time that follows.

    A transaction takes its time a moment before the server shows it. Where that could matter, we look once more
    after the margin, instead of staying below it: so everything that was committed before the run began is read.
    """
    past = q.began.past(q.options.margin)
    seen = _scan(q)
    if past or not seen.others:
        return seen, seen.full
    if seen.covered or seen.sure == seen.full:
        return seen, seen.sure
    q.began.wait(q.options.margin)
    seen = _scan(q)
    return seen, seen.full


def _scan(q: Question) -> Scan:
    return watching.scan(
        q.session,
        q.stream,
        q.content,
        q.top.key,
        now=q.top.clock,
        moment=q.began.moment,
        margin=q.options.margin,
        lag=q.options.lag,
        proven=q.proof.proven,
        before=q.known.horizon[0] if q.known.horizon else None,
    )


def _below(q: Question, time_: str) -> Key | None:
    found = highest(q.session, q.stream, q.content, after=q.known.key, below=time_)
    return found.key if found else q.known.key


# ---------------------------------------------------------------- certifying


@dataclass(frozen=True, slots=True)
class _Certified:
    horizon: Key | None
    pending: Pending | None
    #: those who must still end
    left: Sequence[Lock] = ()


def _certified(
    q: Question, value: Key, holders: Sequence[Lock], found: Sequence[Lock], lag: float | None = None
) -> _Certified:
    """What is certified now that `value` was seen with `holders`, and what is to be waited for."""
    horizon = q.known.horizon
    if (not holders and not lag) or horizon == value:
        return _Certified(value, None)
    before = q.known.pending
    if before:
        left = before.left(found)
        if left or not _passed(q, before.not_before):
            return _Certified(horizon, before.narrowed(left), left)
        horizon = before.value
        if horizon == value:
            return _Certified(value, None)
    not_before = _later(q, lag) if lag else None
    pending = Pending(value, tuple(sorted(lock.id for lock in holders)), not_before, q.top.clock)
    left = list(holders)
    deadline = time.monotonic() + GRACE
    while left and not lag and time.monotonic() < deadline:
        time.sleep(STEP)
        left = pending.left(locks(q.session, q.stream, q.content, waited=pending.holders))
    if not left and not lag:
        return _Certified(value, None)
    return _Certified(horizon, pending, left)


def _lag(q: Question) -> float | None:
    return q.options.lag if q.options.lag and not q.proof.proven else None


def _later(q: Question, seconds: float) -> str:
    query = sql.SQL("SELECT ({} + make_interval(secs => {}))::text").format(
        typed_literal(q.top.clock, MOMENT), sql.Literal(seconds)
    )
    [[moment]] = q.session.rows(query, table="the clock", stream=q.stream)
    return str(moment)


def _passed(q: Question, moment: str | None) -> bool:
    if moment is None:
        return True
    query = sql.SQL("SELECT clock_timestamp() >= {}").format(typed_literal(moment, MOMENT))
    [[passed]] = q.session.rows(query, table="the clock", stream=q.stream)
    return bool(passed)


# ---------------------------------------------------------------- who holds rows back


def _blocker(q: Question, certified: _Certified) -> Blocker:
    since = certified.pending.since if certified.pending else q.top.clock
    return watching.blocker(q.session, q.stream, certified.left, since=since)


def _held(answer: Answer, blocker: Blocker | None, reason: str | None = None) -> Answer:
    return replace(answer, blocker=blocker, reason=reason)
