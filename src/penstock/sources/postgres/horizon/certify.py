"""How far one stream may be read now: by the start of open transactions, or by the locks that writers held.

Rows that an open transaction could still precede are never certified. They become pending: a value, and the
transactions that must end first. The mark stores the pending value, so that a later run, in any process, can certify
it. A pending value is never replaced by a later one before it is certified: under constant load none ever would be.

Virtual transaction ids are visible to everyone. A restarted server assigns them again, which can only prolong a wait.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import typed_literal
from penstock.sources.postgres import marks
from penstock.sources.postgres.horizon.activity import (
    PREPARED_PREFIX,
    TIMESTAMPTZ,
    ActivityScan,
    Blocker,
    Lock,
    find_blocker,
    list_locks,
    scan_activity,
)
from penstock.sources.postgres.horizon.proof import Proof
from penstock.sources.postgres.marks import LoadMark
from penstock.sources.postgres.stream import HighestRow, TableStream

#: short transactions get this long to end, and are looked at this often
GRACE_SECONDS = 0.2
GRACE_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Pending:
    """A value that is certified once the transactions that could precede it have ended."""

    #: a time (strictly below it) or a whole key (up to it), as Postgres texts
    value: Key
    #: virtual ids of transactions; those of prepared ones begin with PREPARED_PREFIX
    holders: tuple[str, ...]
    #: the earliest time for a configured lag; None: as soon as they have ended
    not_before: str | None
    #: the server's clock when it was seen
    since: str

    def document(self) -> Document:
        return {
            "value": list(self.value),
            "holders": list(self.holders),
            "not_before": self.not_before,
            "since": self.since,
        }

    @classmethod
    def read(cls, document: Any) -> Pending:
        value, holders = tuple(map(_text, document["value"])), tuple(map(_text, document["holders"]))
        not_before = None if document["not_before"] is None else _text(document["not_before"])
        return cls(value, holders, not_before, _text(document["since"]))

    def find_open(self, locks: Sequence[Lock]) -> list[Lock]:
        """The transactions that must still end; `locks` has every holder that is still open.

        A holder that prepares its transaction continues under another id: while one of them had a process, every
        prepared writer may be one.
        """
        waited = [lock for lock in locks if lock.waited]
        if self.only_prepared:
            return waited
        return waited + [lock for lock in locks if lock.prepared and lock.writes and not lock.waited]

    @property
    def only_prepared(self) -> bool:
        return all(holder.startswith(PREPARED_PREFIX) for holder in self.holders)

    def narrow(self, open_: Sequence[Lock]) -> Pending:
        """Keep only the open holders if no one of them has a process any more; unchanged before that."""
        if self.only_prepared or not all(lock.prepared for lock in open_):
            return self
        return replace(self, holders=tuple(sorted(lock.id for lock in open_)))


@dataclass(frozen=True, slots=True)
class MarkState:
    """What a stream's mark says about the horizon."""

    #: all rows up to this key were read; None: no row yet
    key: Key | None = None
    #: the certified time or key when it was made; None: nothing
    horizon: Key | None = None
    pending: Pending | None = None
    #: a first load is under way
    loading: bool = False
    proof: Document | None = None


def read_mark_state(stream: str, after: Mark | None, method: str | None) -> MarkState:
    """From a stream's mark; a certificate of another method does not count."""
    ours = marks.keyset_mark(after)
    if after is None or ours is None:
        return MarkState()
    loading = isinstance(marks.read(after), LoadMark)
    proof: Any = ours.proof
    if proof is None or proof.get("method") != method:
        return MarkState(ours.key, loading=loading, proof=proof)
    try:
        horizon = None if proof["horizon"] is None else tuple(map(_text, proof["horizon"]))
        pending = None if proof["pending"] is None else Pending.read(proof["pending"])
    except (KeyError, TypeError) as error:
        raise StreamRefused(
            f"the horizon in the mark cannot be read: {error!r}",
            next_step=f"restore the store, or run `penstock state reset FILE --stream {stream}`",
            stream=stream,
        ) from None
    return MarkState(ours.key, horizon, pending, loading, proof)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


@dataclass(frozen=True, slots=True)
class RunStart:
    """When a run first looked at the server: it reads everything that was committed before."""

    #: by the server's clock
    server_time: str
    #: by the local monotonic clock, slightly later
    local_seconds: float

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, self.local_seconds + seconds - time.monotonic()))

    def is_past(self, seconds: float) -> bool:
        return time.monotonic() >= self.local_seconds + seconds


@dataclass(frozen=True, slots=True)
class NewRows:
    """A stream that has rows above its mark."""

    stream: TableStream
    proof: Proof
    state: MarkState
    top: HighestRow
    start: RunStart


@dataclass(frozen=True, slots=True)
class HorizonResult:
    """How far a stream may be read, and why not further."""

    #: the highest key that may be read; None: no row may be read
    key: Key | None
    #: the certified time (strictly below it) or key; None: nothing
    horizon: Key | None
    pending: Pending | None
    #: sessions that the server hides, so that the horizon is not proven
    hidden: int = 0
    #: the server's clock was set back since the last run
    set_back: bool = False
    #: the transaction that holds rows back
    blocker: Blocker | None = None
    #: another cause that holds rows back: lag, ahead, precision or run; None: there is none
    reason: str | None = None


def certify_by_activity(new: NewRows) -> HorizonResult:
    """Certify a time: strictly below the start of every open transaction."""
    scan, value = _scan_after_margin(new)
    waited = new.state.pending.holders if new.state.pending else ()
    locks: list[Lock] = []
    if scan.unseen or scan.prepares or waited:
        locks = list_locks(new.stream, unseen=scan.unseen, waited=waited)
    holders = [lock for lock in locks if lock.unseen or (lock.prepared and lock.writes)]
    certificate = _certify(new, (value,), holders, locks)
    if certificate.horizon == (value,):
        reached = scan.covered or (scan.reached and value == scan.full)
        key = new.top.key if reached else _highest_below(new, value)
    else:
        key = _highest_below(new, certificate.horizon[0]) if certificate.horizon else new.state.key
    pending = certificate.pending
    if pending and pending != new.state.pending and key == new.state.key == _highest_below(new, pending.value[0]):
        # Its end would release no row: not worth a slice without rows.
        pending = new.state.pending
    result = HorizonResult(key, certificate.horizon, pending, scan.hidden, scan.set_back)
    if key == new.top.key:
        return result
    if certificate.open:
        return replace(result, blocker=_find_blocker(new, certificate))
    if scan.ahead and new.stream.highest(after=key, below=new.top.clock) is None:
        return replace(result, reason="ahead")
    return replace(result, blocker=scan.blocker if scan.by == "transaction" else None, reason=scan.by)


def certify_by_locks(new: NewRows) -> HorizonResult:
    """Certify a key: the highest visible one, once all transactions have ended that held a lock to write then."""
    waited = new.state.pending.holders if new.state.pending else ()
    locks = list_locks(new.stream, waited=waited) if new.proof.lockable or waited else []
    lag = new.stream.horizon.lag if not new.proof.proven else 0.0
    certificate = _certify(new, new.top.key, [lock for lock in locks if lock.writes], locks, lag)
    key = certificate.horizon or new.state.key
    result = HorizonResult(key, certificate.horizon, certificate.pending)
    if key == new.top.key:
        return result
    if certificate.open:
        return replace(result, blocker=_find_blocker(new, certificate))
    return replace(result, reason="lag" if certificate.pending and certificate.pending.not_before else None)


# ---------------------------------------------------------------- activity


def _scan_after_margin(new: NewRows) -> tuple[ActivityScan, str]:
    """Look at the other transactions; the time up to which rows may be read.

    A transaction takes its timestamp shortly before the server shows it. If that could matter, look again after the
    margin, instead of staying below it: so the run reads everything that was committed before it began.
    """
    margin = new.stream.horizon.margin
    past = new.start.is_past(margin)
    scan = _scan(new)
    if past or not scan.others:
        return scan, scan.full
    if scan.covered or scan.sure == scan.full:
        return scan, scan.sure
    new.start.wait(margin)
    scan = _scan(new)
    return scan, scan.full


def _scan(new: NewRows) -> ActivityScan:
    before = new.state.horizon[0] if new.state.horizon else None
    return scan_activity(new.stream, new.top, run_start=new.start.server_time, proven=new.proof.proven, before=before)


def _highest_below(new: NewRows, time_: str) -> Key | None:
    highest = new.stream.highest(after=new.state.key, below=time_)
    return highest.key if highest else new.state.key


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True, slots=True)
class _Certificate:
    horizon: Key | None
    pending: Pending | None
    #: the transactions that must still end
    open: Sequence[Lock] = ()


def _certify(
    new: NewRows, value: Key, holders: Sequence[Lock], locks: Sequence[Lock], lag: float = 0.0
) -> _Certificate:
    """Certify what is possible now that `value` was seen with `holders`; the rest becomes pending."""
    horizon = new.state.horizon
    if (not holders and not lag) or horizon == value:
        return _Certificate(value, None)
    before = new.state.pending
    if before:
        open_ = before.find_open(locks)
        if open_ or not _is_past(new, before.not_before):
            return _Certificate(horizon, before.narrow(open_), open_)
        horizon = before.value
        if horizon == value:
            return _Certificate(value, None)
    not_before = _add_seconds(new, lag) if lag else None
    pending = Pending(value, tuple(sorted(lock.id for lock in holders)), not_before, new.top.clock)
    open_ = list(holders)
    deadline = time.monotonic() + GRACE_SECONDS
    while open_ and not lag and time.monotonic() < deadline:
        time.sleep(GRACE_POLL_SECONDS)
        open_ = pending.find_open(list_locks(new.stream, waited=pending.holders))
    if not open_ and not lag:
        return _Certificate(value, None)
    return _Certificate(horizon, pending, open_)


def _add_seconds(new: NewRows, seconds: float) -> str:
    """The time that many seconds after the highest row was seen."""
    query = sql.SQL("SELECT ({} + make_interval(secs => {}))::text").format(
        typed_literal(new.top.clock, TIMESTAMPTZ), sql.Literal(seconds)
    )
    return str(new.stream.rows(query, "the clock")[0][0])


def _is_past(new: NewRows, time_: str | None) -> bool:
    """Whether the server's clock has reached a time."""
    if time_ is None:
        return True
    query = sql.SQL("SELECT clock_timestamp() >= {}").format(typed_literal(time_, TIMESTAMPTZ))
    return bool(new.stream.rows(query, "the clock")[0][0])


def _find_blocker(new: NewRows, certificate: _Certificate) -> Blocker:
    since = certificate.pending.since if certificate.pending else new.top.clock
    return find_blocker(new.stream, certificate.open, since=since)
