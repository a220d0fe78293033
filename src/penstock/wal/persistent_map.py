"""A mapping that is never changed: a copy with one more key shares almost everything with the mapping before it.

A ledger with 100,000 keys is a value like any other, and a batch more must not copy all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BUCKETS = 512


class PersistentMap(Mapping[K, V]):
    """Equal to any mapping with the same items. In no particular order."""

    __slots__ = ("_buckets", "_size")

    def __init__(self, items: Iterable[tuple[K, V]] = ()) -> None:
        buckets: list[dict[K, V]] = [{} for _ in range(_BUCKETS)]
        for key, value in items:
            buckets[hash(key) % _BUCKETS][key] = value
        #: never changed
        self._buckets = buckets
        self._size = sum(map(len, buckets))

    def having(self, key: K, value: V) -> PersistentMap[K, V]:
        """This mapping with one more item, or another value of a key."""
        at = hash(key) % _BUCKETS
        bucket = self._buckets[at]
        changed: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        buckets = self._buckets.copy()
        buckets[at] = {**bucket, key: value}
        changed._buckets = buckets
        changed._size = self._size + (key not in bucket)
        return changed

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) % _BUCKETS][key]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"
