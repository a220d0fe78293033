"""What a horizon waits for: a place that was seen, and those who could still write below it then.

Kept in the mark, so that the next run, in whatever process, can certify it once they have all ended. Virtual
transaction ids are what everyone may see of everyone; a server that starts anew gives them out again, which can
only make us wait longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.sources.postgres import marks
from penstock.sources.postgres.horizon.watching import PREPARED, Lock
from penstock.sources.postgres.marks import KeysetMark, LoadMark


@dataclass(frozen=True, slots=True)
class Pending:
    """Certified once its holders have ended."""

    #: a time (strictly below it) or a whole key (up to it), as Postgres texts
    value: Key
    #: virtual ids of transactions; of prepared ones they begin with PREPARED
    holders: tuple[str, ...]
    #: not before this moment, where a lag is configured; None: as soon as they have ended
    not_before: str | None
    #: when it was seen
    since: str

    def document(self) -> Document:
        return {
            "value": list(self.value),
            "holders": list(self.holders),
            "not_before": self.not_before,
            "since": self.since,
        }

    @classmethod
    def read(cls, said: Any) -> Pending:
        value, holders = tuple(map(_text, said["value"])), tuple(map(_text, said["holders"]))
        not_before = None if said["not_before"] is None else _text(said["not_before"])
        return cls(value, holders, not_before, _text(said["since"]))

    def left(self, found: Sequence[Lock]) -> list[Lock]:
        """Those who must still end. `found` says of each of our holders whether it is still there.

        A holder that prepares its transaction goes on under another id: as long as one of them had a process,
        every prepared writer may be one.
        """
        waited = [lock for lock in found if lock.waited]
        if self.only_prepared:
            return waited
        return waited + [lock for lock in found if lock.prepared and lock.writes and not lock.waited]

    @property
    def only_prepared(self) -> bool:
        return all(holder.startswith(PREPARED) for holder in self.holders)

    def narrowed(self, left: Sequence[Lock]) -> Pending:
        """The same once no holder has a process any more; before that it stays as it is."""
        if self.only_prepared or not all(lock.prepared for lock in left):
            return self
        return replace(self, holders=tuple(sorted(lock.id for lock in left)))


@dataclass(frozen=True, slots=True)
class Known:
    """What a stream's mark knows."""

    #: up to here everything was read; None: nothing yet
    key: Key | None = None
    #: what was certified when it was made, a time or a key; None: nothing
    horizon: Key | None = None
    pending: Pending | None = None
    #: a first load is under way
    loading: bool = False
    proof: Document | None = None


def known(stream: str, after: Mark | None, method: str | None) -> Known:
    """From a stream's mark; what was certified by another method does not count."""
    if after is None:
        return Known()
    ours = marks.read(after)
    loading = isinstance(ours, LoadMark)
    if isinstance(ours, LoadMark):
        ours = ours.then
    if not isinstance(ours, KeysetMark):
        return Known()
    proof: Any = ours.proof
    if proof is None or proof.get("method") != method:
        return Known(ours.key, loading=loading, proof=proof)
    try:
        horizon = None if proof["horizon"] is None else tuple(map(_text, proof["horizon"]))
        pending = None if proof["pending"] is None else Pending.read(proof["pending"])
    except (KeyError, TypeError) as error:
        raise StreamRefused(
            f"what the mark says of its horizon cannot be read: {error!r}",
            next_step=f"restore the store, or run `penstock state reset FILE --stream {stream}`",
            stream=stream,
        ) from None
    return Known(ours.key, horizon, pending, loading, proof)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
