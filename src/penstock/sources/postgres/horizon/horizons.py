"""The horizon: how far a stream may be read now, so that nothing below can still appear.

Asked only when something is new. The answer is the run's ceiling, a document: `key` is the highest key that may be
read, `proof` goes into the marks of the run's slices (the certificate, and what is still waited for), `horizon` is for
people, and `held` says that a transaction keeps rows back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.errors import StreamFailed
from penstock.links.postgres.connection import Session
from penstock.ports import Remaining
from penstock.sources.postgres import marks
from penstock.sources.postgres.content import TableContent, names
from penstock.sources.postgres.horizon.certifying import Answer, Began, Question, by_activity, by_holders
from penstock.sources.postgres.horizon.pending import known
from penstock.sources.postgres.horizon.proofs import Proof, prove
from penstock.sources.postgres.horizon.watching import Blocker, span
from penstock.sources.postgres.marks import KeysetMark
from penstock.sources.postgres.options import Horizon
from penstock.sources.postgres.plan import Top, highest

#: what holds rows back where no transaction does
_REASONS = {
    "lag": "rows wait for the `lag` of {lag:g} s",
    "precision": "the newest rows wait until {cursor}, which has few digits below the second, has moved on",
    "ahead": "rows wait whose {cursor} lies ahead of the server's clock",
}

_SET_BACK = (
    "the server's clock is behind where an earlier run found it: it was set back, and rows written since, with times "
    "below the mark, are not seen; run `penstock rewind` to a time before it happened"
)


class Horizons:
    """The horizons of a source's streams. What one has learnt of the server in a run, the others use."""

    def __init__(self, options: Callable[[str], Horizon]) -> None:
        self._options = options
        self._proofs: dict[str, Proof] = {}
        self._began: dict[str, Began] = {}

    def ceiling(
        self, session: Session, stream: str, content: TableContent, run: str, after: Mark | None
    ) -> Document | None:
        """How far this run reads; None: there is nothing to read."""
        options = self._options(stream)
        start = known(stream, after, None)
        top = highest(session, stream, content, after=start.key)
        if top is None:
            if start.key is None and not start.loading:
                return None
            return _ceiling(start.key, start.proof)
        if options.method == "off":
            return _unbounded(top)
        if stream not in self._proofs:
            self._proofs[stream] = prove(session, stream, content)
        proof = self._proofs[stream]
        # The first stream of a run that has something new says when it began.
        began = self._began.setdefault(run, Began(top.clock, time.monotonic()))
        question = Question(session, stream, content, options, proof, known(stream, after, proof.method), top, began)
        answer = by_activity(question) if proof.method == "activity" else by_holders(question)
        return _told(question, answer)


def next_mark_without_rows(
    after: Mark | None, ceiling: Document, content: TableContent, timeline: int | None
) -> Mark | None:
    """The mark that keeps what is to be waited for, where nothing may be read; None: it is kept already.

    Also for whoever has read everything that may be: a run that ended there would have to begin its wait anew.
    """
    proof: Any = ceiling.get("proof")
    if proof is None or proof["pending"] is None:
        return None
    if after is None:
        return KeysetMark(None, content.key, content.unique, timeline, proof).mark()
    ours = marks.read(after)
    if not isinstance(ours, KeysetMark) or (ours.proof and ours.proof.get("pending") == proof["pending"]):
        return None
    return replace(ours, proof=proof, timeline=timeline).mark()


def key(ceiling: Document) -> Key | None:
    """The highest key that a run may read; None: nothing may be read yet."""
    found: Any = ceiling["key"]
    return None if found is None else tuple(found)


def held(ceiling: Document) -> Range | None:
    """The rows that may not be read yet, as a range of keys; None: there are none."""
    told: Any = ceiling.get("horizon")
    return None if told is None or told["top"] is None else Range(key(ceiling), tuple(told["top"]))


def noted(left: Remaining, ceiling: Document, held_back: int | None) -> Remaining:
    """What is left, with what the horizon has to say of it."""
    told: Any = ceiling.get("horizon")
    if told is None:
        return left
    return replace(
        left,
        held_back=held_back,
        blocker=told["blocker"],
        warning=told["warning"],
        horizon=told["words"],
        proven=told["proven"],
    )


def with_warnings(ceiling: Document, found: Iterable[str]) -> Document:
    """A ceiling with more for an operator to look at: a run says it even if it has nothing to move."""
    said = list(found)
    if not said:
        return ceiling
    told: Any = ceiling.get("horizon") or dict.fromkeys(("words", "proven", "top", "blocker", "warning"))
    warning = "; ".join([*([told["warning"]] if told["warning"] else []), *said])
    return {**ceiling, "held": True, "horizon": {**told, "warning": warning}}


# ---------------------------------------------------------------- documents


def _told(q: Question, answer: Answer) -> Document:
    """The ceiling that follows from an answer; StreamFailed if someone has held rows back for too long."""
    assumptions = [*q.proof.assumptions, *([_hides(q, answer.hidden)] if answer.hidden else [])]
    proven = not assumptions
    label = "proven" if proven else f"assumed: {'; '.join(assumptions)}"
    words = _extent(q.content, q.proof, answer.horizon)
    if answer.reason in _REASONS:
        words += "; " + _REASONS[answer.reason].format(lag=q.options.lag, cursor=q.content.key[0].column)
    blocker = answer.blocker
    return _ceiling(
        answer.key,
        {
            "method": q.proof.method,
            "proven": proven,
            "assumes": assumptions,
            "horizon": _list(answer.horizon),
            "pending": answer.pending.document() if answer.pending else None,
        },
        {
            "words": f"{words} ({label})",
            "proven": proven,
            "top": list(q.top.key) if blocker or answer.reason in _REASONS else None,
            "blocker": blocker.words() if blocker else None,
            "warning": _SET_BACK if answer.set_back else _warning(q, blocker) if blocker else None,
        },
    )


def _warning(q: Question, blocker: Blocker) -> str | None:
    """What to say of one who has been there for long; StreamFailed if the user has said so."""
    age, options = blocker.seconds, q.options
    if age is None:
        return None
    if options.fail_after is not None and age > options.fail_after:
        raise StreamFailed(
            f"rows of {q.content.table} have been held back for more than {span(options.fail_after)} "
            f"(`fail_after`), by {blocker.words()}",
            next_step=f"{blocker.remedy}, or raise `fail_after`, and run again",
            stream=q.stream,
        )
    if options.warn_after is not None and age > options.warn_after:
        return f"rows are held back by {blocker.words()}; {blocker.remedy}, if it has been forgotten"
    return None


def _hides(q: Question, count: int) -> str:
    who = "1 session" if count == 1 else f"{count} sessions"
    return f"{who} that the server hides from {q.session.user} end each message with the transaction that it began"


def _extent(content: TableContent, proof: Proof, horizon: Key | None) -> str:
    if horizon is None:
        return "nothing is certified yet"
    if proof.method == "activity":
        return f"below {horizon[0]}"
    return "up to " + ", ".join(f"{name} {text}" for name, text in zip(names(content.key), horizon, strict=True))


def _unbounded(top: Top) -> Document:
    return _ceiling(
        top.key,
        {
            "method": "off",
            "proven": False,
            "assumes": ["no transaction commits late"],
            "horizon": None,
            "pending": None,
        },
        {
            "words": "all that is visible (assumed: no transaction commits late; `method: off`)",
            "proven": False,
            "top": None,
            "blocker": None,
            "warning": None,
        },
    )


def _ceiling(key: Key | None, proof: Document | None, told: Document | None = None) -> Document:
    return {
        "key": _list(key),
        "held": bool(told and told["blocker"]),
        "horizon": told,
        "proof": proof,
    }


def _list(key: Key | None) -> list[str] | None:
    return None if key is None else list(key)
