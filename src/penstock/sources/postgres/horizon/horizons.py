"""The horizon: how far a stream may be read now, so that no row can still appear below.

It is asked for only when there are new rows. The result is the run's ceiling, a document: `key` is the highest key that
may be read, `proof` goes into the marks of the run's slices (the certificate and what is pending), `horizon` is for
messages, and `held` says that a transaction holds rows back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.errors import StreamFailed
from penstock.ports import Remaining
from penstock.sources.postgres import marks
from penstock.sources.postgres.horizon.activity import Blocker, format_duration
from penstock.sources.postgres.horizon.certify import (
    HorizonResult,
    NewRows,
    RunStart,
    certify_by_activity,
    certify_by_locks,
    read_mark_state,
)
from penstock.sources.postgres.horizon.proof import Proof, prove
from penstock.sources.postgres.marks import KeysetMark, to_key, to_list
from penstock.sources.postgres.stream import HighestRow, TableStream

#: other causes than a transaction that hold rows back
_REASONS = {
    "lag": "rows wait for the `lag` of {lag:g} s",
    "precision": "the newest rows wait until {cursor}, which has less than microsecond precision, has advanced",
    "ahead": "rows whose {cursor} is ahead of the server's clock have to wait",
}

_SET_BACK = (
    "the server's clock was set back since an earlier run: rows written since then have times below the mark and are "
    "not seen; run `penstock rewind` to a time before it happened"
)


class Horizons:
    """The horizons of a source's streams, which share proofs and the start of the run."""

    def __init__(self) -> None:
        self._proofs: dict[str, Proof] = {}
        self._starts: dict[str, RunStart] = {}

    def ceiling(self, stream: TableStream, run: str, after: Mark | None) -> Document | None:
        """How far this run reads; None: there is nothing to read."""
        state = read_mark_state(stream.name, after, None)
        top = stream.highest(after=state.key)
        if top is None:
            if state.key is None and not state.loading:
                return None
            return _ceiling(state.key, state.proof)
        if stream.horizon.method == "off":
            return _unlimited_ceiling(top)
        if stream.name not in self._proofs:
            self._proofs[stream.name] = prove(stream)
        proof = self._proofs[stream.name]
        # The first stream of a run that has new rows sets the start of the run.
        start = self._starts.setdefault(run, RunStart(top.clock, time.monotonic()))
        new = NewRows(stream, proof, read_mark_state(stream.name, after, proof.method), top, start)
        certify = certify_by_activity if proof.method == "activity" else certify_by_locks
        return _ceiling_from(new, certify(new))


def next_mark_without_rows(stream: TableStream, after: Mark | None, ceiling: Document) -> Mark | None:
    """The mark that stores what is pending, if no more rows may be read; None: it is stored already.

    Without it, the next run would have to start its wait again.
    """
    proof: Any = ceiling.get("proof")
    if proof is None or proof["pending"] is None:
        return None
    timeline = stream.session.server.timeline
    if after is None:
        return KeysetMark(None, stream.content.key, stream.content.unique, timeline, proof).mark()
    ours = marks.read(after)
    if not isinstance(ours, KeysetMark) or (ours.proof and ours.proof.get("pending") == proof["pending"]):
        return None
    return replace(ours, proof=proof, timeline=timeline).mark()


def highest_key(ceiling: Document) -> Key | None:
    """The highest key that a run may read; None: no row may be read yet."""
    key: Any = ceiling["key"]
    return to_key(key)


def held_range(ceiling: Document) -> Range | None:
    """The rows that may not be read yet, as a range of keys; None: there are none."""
    horizon: Any = ceiling.get("horizon")
    if horizon is None or horizon["top"] is None:
        return None
    return Range(highest_key(ceiling), tuple(horizon["top"]))


def add_horizon(left: Remaining, ceiling: Document, held_back: int | None) -> Remaining:
    """Add the horizon's messages to the remaining rows."""
    horizon: Any = ceiling.get("horizon")
    if horizon is None:
        return left
    return replace(
        left,
        held_back=held_back,
        blocker=horizon["blocker"],
        warning=horizon["warning"],
        horizon=horizon["words"],
        proven=horizon["proven"],
    )


def add_warnings(ceiling: Document, warnings: Iterable[str]) -> Document:
    """Add warnings for the operator: a run prints them even if it has nothing to move."""
    horizon: Any = ceiling.get("horizon") or dict.fromkeys(("words", "proven", "top", "blocker", "warning"))
    new = list(warnings)
    if not new:
        return ceiling
    warning = "; ".join([*([horizon["warning"]] if horizon["warning"] else []), *new])
    return {**ceiling, "held": True, "horizon": {**horizon, "warning": warning}}


# ---------------------------------------------------------------- documents


def _ceiling_from(new: NewRows, result: HorizonResult) -> Document:
    """The ceiling that follows from a result; StreamFailed if a transaction has held rows back for too long."""
    proof, content, options = new.proof, new.stream.content, new.stream.horizon
    assumptions = [*proof.assumptions, *([_hidden_assumption(new, result.hidden)] if result.hidden else [])]
    label = f"assumed: {'; '.join(assumptions)}" if assumptions else "proven"
    if result.horizon is None:
        words = "nothing is certified yet"
    elif proof.method == "activity":
        words = f"below {result.horizon[0]}"
    else:
        pairs = zip(content.key_names, result.horizon, strict=True)
        words = "up to " + ", ".join(f"{name} {text}" for name, text in pairs)
    if result.reason in _REASONS:
        words += "; " + _REASONS[result.reason].format(lag=options.lag, cursor=content.key[0].column)
    blocker = result.blocker
    return _ceiling(
        result.key,
        {
            "method": proof.method,
            "proven": not assumptions,
            "assumes": assumptions,
            "horizon": to_list(result.horizon),
            "pending": result.pending.document() if result.pending else None,
        },
        {
            "words": f"{words} ({label})",
            "proven": not assumptions,
            "top": list(new.top.key) if blocker or result.reason in _REASONS else None,
            "blocker": blocker.describe() if blocker else None,
            "warning": _SET_BACK if result.set_back else _blocker_warning(new.stream, blocker) if blocker else None,
        },
    )


def _blocker_warning(stream: TableStream, blocker: Blocker) -> str | None:
    """A warning about a transaction that has been open for long; StreamFailed if it exceeds `fail_after`."""
    age, options = blocker.seconds, stream.horizon
    if age is None:
        return None
    if options.fail_after is not None and age > options.fail_after:
        raise StreamFailed(
            f"rows of {stream.content.table} have been held back for more than {format_duration(options.fail_after)} "
            f"(`fail_after`), by {blocker.describe()}",
            next_step=f"{blocker.remedy}, or raise `fail_after`, and run again",
            stream=stream.name,
        )
    if options.warn_after is not None and age > options.warn_after:
        return f"rows are held back by {blocker.describe()}; {blocker.remedy}, if it has been forgotten"
    return None


def _hidden_assumption(new: NewRows, count: int) -> str:
    sessions = "1 session" if count == 1 else f"{count} sessions"
    user = new.stream.session.user
    return f"{sessions} that the server hides from {user} end each message with the transaction that it began"


def _unlimited_ceiling(top: HighestRow) -> Document:
    assumption = "no transaction commits late"
    return _ceiling(
        top.key,
        {"method": "off", "proven": False, "assumes": [assumption], "horizon": None, "pending": None},
        {
            "words": f"all that is visible (assumed: {assumption}; `method: off`)",
            "proven": False,
            "top": None,
            "blocker": None,
            "warning": None,
        },
    )


def _ceiling(key: Key | None, proof: Document | None, horizon: Document | None = None) -> Document:
    held = bool(horizon and horizon["blocker"])
    return {"key": to_list(key), "held": held, "horizon": horizon, "proof": proof}
