"""The number that a user means by a number or a time."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.errors import StreamRefused
from penstock.lake.standing import Standing
from penstock.lake.times import head_at, known
from penstock.sources.lake.missing import gone_below


def number_of(to: str, standing: Standing, *, at: int, table: str, pipeline: str, stream: str) -> int:
    """StreamRefused if there is no such place, not any more, or not yet; `at`: where the reader is."""

    def refused(what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=pipeline, stream=stream)

    if to.isascii() and to.isdecimal():
        seq = int(to)
    else:
        try:
            moment = datetime.fromisoformat(to)
        except ValueError:
            raise refused(
                f"{to!r} is neither a number nor a time",
                f"give a number from {standing.floor} to {standing.head}, or a time such as 2026-01-31T12:00:00+00:00",
            ) from None
        if moment.tzinfo is None:
            raise refused(f"the time {to!r} does not say its zone", f"for UTC write {moment.isoformat()}+00:00")
        if moment > datetime.now(UTC):
            raise refused(f"the time {to} lies in the future", "give a time that has been")
        found = _head_at(standing, moment)
        if found is None:
            oldest = min((at_ms for at_ms, _ in known(standing)), default=0)
            since = datetime.fromtimestamp(oldest / 1000, UTC).isoformat(timespec="seconds")
            raise refused(
                f"the history of {table} goes back only to {since}",
                f"give a later time, or a number from {standing.floor} to {standing.head}",
            )
        seq = found
    if seq > standing.head:
        raise refused(
            f"number {seq} lies in the future: the highest number of {table} is {standing.head}",
            f"give a number from {standing.floor} to {standing.head}",
        )
    if seq < standing.floor:
        raise refused(
            f"{gone_below(standing, table)}, so {seq} cannot be gone back to",
            f"give a number from {standing.floor} to {standing.head}",
        )
    if seq > max(at, standing.floor):
        raise refused(
            f"what comes before number {seq} has not been read yet: this reader is at number {at}",
            f"give a number from {standing.floor} to {at}",
        )
    return seq


def _head_at(standing: Standing, moment: datetime) -> int | None:
    """The head that the table had at a time, or shortly before; None: its history no longer tells."""
    times = known(standing)
    if times and times[0][0] <= int(moment.timestamp() * 1000):
        return head_at(times, moment)
    return 0 if standing.whole and standing.floor == 0 else None
