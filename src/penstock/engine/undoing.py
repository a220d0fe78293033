"""Where an undo leads, from a stream's history alone: which of its versions can be gone back to, and what comes again.

Marks are not compared here, only a source could. That one lies before another is known from the slices between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from penstock.core.marks import Position
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.ports import Change, Store, StreamState

#: changes that are looked at beyond the version in question, to find out which of two marks lies before the other
EARLIER_CHANGES = 500


@dataclass(frozen=True, slots=True)
class Route:
    """What lies between where a stream stands and where an undo leads."""

    #: True: it leads back; False: to a place ahead, up to which everything was delivered; None: unknown
    back: bool | None
    #: rows that were delivered between the two; None: not known
    rows: int | None = None


def default_version(state: StreamState) -> int | None:
    """The version that an undo leads to if none is named, once what is open or wanted is done; None: it only finishes.

    An undo that is open was cut short: to go before it would be a redo.
    """
    opened = state.intent
    if opened is not None and opened.kind is Kind.UNDO and not state.reset_wanted:
        return None
    return state.version + (opened is not None) + state.reset_wanted - 1


def changes_to(store: Store, pipeline: str, stream: str, version: int, state: StreamState) -> Sequence[Change]:
    """The newest changes, enough to judge a version by."""
    return store.history(pipeline, stream, most=max(1, state.version - version + 1) + EARLIER_CHANGES)


def foresee(changes: Sequence[Change], state: StreamState) -> Sequence[Change]:
    """The history as it will be once what is open or wanted is done. The rows of an open slice are not known."""
    found = list(changes)
    if state.intent is not None:
        reason = "advance" if state.intent.kind is Kind.ROWS else state.intent.kind.value
        found.insert(0, _next(state, found, reason, state.intent.position))
    if state.reset_wanted and found and found[0].position is not None:
        found.insert(0, _next(state, found, "reset", replace(found[0].position, mark=None, id="")))
    return found


def _next(state: StreamState, changes: Sequence[Change], reason: str, position: Position) -> Change:
    at = state.moved_at or datetime.min.replace(tzinfo=UTC)
    return Change(changes[0].version + 1 if changes else 1, at, reason, position, 0, None)


def refuse_refresh(stream: str) -> StreamRefused:
    """The refusal to undo a stream whose mark names no place to go back to."""
    return StreamRefused(
        "the stream is read in full in every run, so its mark cannot be moved back",
        next_step="nothing needs to be undone: the next run replaces all rows",
        stream=stream,
    )


def find_position(changes: Sequence[Change], version: int, stream: str) -> Position:
    """Where the stream stood at a version; StreamRefused if it cannot be gone back to. `changes`: newest first."""
    if not changes:
        raise StreamRefused(
            "it has not been changed yet, so there is nothing to undo",
            next_step="run the pipeline: `penstock run FILE`",
            stream=stream,
        )

    def refused(why: str, next_step: str) -> StreamRefused:
        return StreamRefused(f"it cannot go back to version {version}: {why}", next_step=next_step, stream=stream)

    beginning = refused(
        "it was at its beginning then",
        f"`penstock state reset FILE --stream {stream}` reads it again from the beginning",
    )
    if version == 0:
        raise beginning
    listed = f"`penstock state history FILE --stream {stream}` lists them"
    found = next((change for change in changes if change.version == version), None)
    if found is None and 0 < version < changes[-1].version:
        raise refused(
            f"it is no longer kept; the oldest version that is kept is {changes[-1].version}",
            f"{listed}; the key `history` of the pipeline file sets how many are kept",
        )
    if found is None:
        raise refused(
            f"there is none; the newest is {changes[0].version}",
            listed,
        )
    if found.position is None or found.position.mark is None:
        raise beginning
    if found.reason == "refresh":
        raise refuse_refresh(stream)
    if (wall := _wall(changes, version)) is not None:
        held = wall.position.number if wall.position else 0
        if held < found.position.number:
            why = f"the recover at version {wall.version} found the sink without that slice; its rows would be skipped"
        else:
            why = f"the recover at version {wall.version} does not tell whether the sink holds that slice"
        raise refused(why, "go on from where it is: `penstock run FILE`")
    return found.position


def _wall(changes: Sequence[Change], version: int) -> Change | None:
    """The recover that a version lies behind; None: its slice is in the sink's chain.

    Each slice follows the one of the version before, except that a recover leads to whatever the sink held.
    """
    known = {change.version: change for change in changes}
    at = changes[0].version
    while at > version:
        change = known[at]
        if change.reason != "recover":
            at -= 1
            continue
        held = change.position
        same = [v for v in range(version, at) if held and (p := known[v].position) and p.id == held.id]
        if not same:
            return change
        at = same[-1]
    return None


def find_route(changes: Sequence[Change], to: Position) -> Route:
    """How a place lies to where the stream stands now."""
    here, there = _text(changes[0].position), _text(to)
    steps = list(_steps(changes))
    rows = _between(steps, there, here)
    if rows is not _NO_PATH:
        return Route(back=True, rows=rows)
    return Route(back=False if _between(steps, here, there) is not _NO_PATH else None)


_NO_PATH = -1


def _steps(changes: Sequence[Change]) -> Iterator[tuple[str, str, int | None]]:
    """(mark, a mark that lies after it, rows delivered from one to the other)."""
    first = [Change(0, changes[-1].at, "", None, 0, None)] if changes[-1].version == 1 else []
    for newer, older in pairwise([*changes, *first]):
        low, high = _text(older.position), _text(newer.position)
        if newer.reason == "advance":
            yield low, high, newer.rows
        elif newer.reason in ("reset", "rewind") and low:
            yield high, low, None


def _between(steps: Sequence[tuple[str, str, int | None]], start: str, end: str) -> int | None:
    """Rows on the shortest way along the steps; None: not known; _NO_PATH: there is none."""
    onwards: dict[str, list[tuple[str, int | None]]] = {}
    for low, high, rows in steps:
        onwards.setdefault(low, []).append((high, rows))
    waiting: deque[tuple[str, int | None]] = deque([(start, 0)])
    seen = {start}
    while waiting:
        mark, total = waiting.popleft()
        if mark == end:
            return total
        for high, rows in onwards.get(mark, ()):
            if high not in seen:
                seen.add(high)
                waiting.append((high, None if total is None or rows is None else total + rows))
    return _NO_PATH


def _text(position: Position | None) -> str:
    return position.mark.text if position and position.mark else ""
