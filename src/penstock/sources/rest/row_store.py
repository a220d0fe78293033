"""Keys and digests of the objects that a comparison has read, in a temporary file that ends with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from penstock.core.comparing import Summary
from penstock.core.ranges import Key, Range
from penstock.core.types import INTEGERS, Type
from penstock.sources.rest.row_digests import ComparedRow
from penstock.sources.rest.spooling import SpoolWriter

#: a checksum is added up in two halves, so that no sum is too large for SQLite
_HALF = 1 << 30


class RowStore:
    """Rows ordered by key: numbers as numbers, strings by their bytes."""

    def __init__(self, types: Sequence[Type]) -> None:
        # An empty name is a temporary file that SQLite removes. Used by one thread at a time.
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._numbers = [type_ in INTEGERS for type_ in types]
        kinds = ["INTEGER" if is_number else "TEXT" for is_number in self._numbers]
        keys = ", ".join(f"k{n} {kind} NOT NULL" for n, kind in enumerate(kinds))
        self._names = ", ".join(f"k{n}" for n in range(len(kinds)))
        self._db.execute(
            f"CREATE TABLE rows ({keys}, step INTEGER, digest TEXT, high INTEGER, low INTEGER, "
            f"PRIMARY KEY ({self._names})) WITHOUT ROWID"
        )

    def add(self, rows: Sequence[tuple[ComparedRow, int]]) -> None:
        """Add rows with their times; a row that is there already is replaced."""
        self._db.execute("BEGIN")
        self._db.executemany(
            f"INSERT OR REPLACE INTO rows VALUES ({', '.join('?' * (len(self._numbers) + 4))})",  # noqa: S608 (fixed)
            [(*self._stored(row.key), step, row.digest, *_halves(row.digest)) for row, step in rows],
        )
        self._db.execute("COMMIT")

    def summarize(self, range_: Range) -> Summary:
        where, values = self._within(range_)
        [rows, high, low] = self._db.execute(
            f"SELECT count(*), coalesce(sum(high), 0), coalesce(sum(low), 0) FROM rows WHERE {where}",  # noqa: S608 (fixed)
            values,
        ).fetchone()
        return Summary(rows, str(high * _HALF + low))

    def find_cuts(self, range_: Range, pieces: int) -> Sequence[Key]:
        where, values = self._within(range_)
        found = self._db.execute(
            f"SELECT {self._names} FROM (SELECT {self._names}, row_number() OVER (ORDER BY {self._names}) AS n, "  # noqa: S608 (fixed)
            f"count(*) OVER () AS c FROM rows WHERE {where}) WHERE n % max(1, c / {pieces}) = 0 AND n < c ORDER BY n",
            values,
        )
        return [_key(row) for row in found]

    def find_end(self, after: Key | None, rows: int, before: int) -> Key | None:
        """The key of the row that many rows after a key, among those before a time."""
        where, values = self._within(Range(after, None))
        found = self._db.execute(
            f"SELECT {self._names} FROM rows WHERE {where} AND step < ? ORDER BY {self._names} LIMIT 1 OFFSET ?",  # noqa: S608 (fixed)
            (*values, before, rows - 1),
        ).fetchone()
        return None if found is None else _key(found)

    def list_digests(self, range_: Range) -> Mapping[Key, str]:
        where, values = self._within(range_)
        found = self._db.execute(f"SELECT {self._names}, digest FROM rows WHERE {where}", values)  # noqa: S608 (fixed)
        return {_key(row[:-1]): row[-1] for row in found}

    def close(self) -> None:
        self._db.close()

    def _within(self, range_: Range) -> tuple[str, tuple[object, ...]]:
        sides = [(sign, key) for sign, key in ((">", range_.after), ("<=", range_.upto)) if key is not None]
        marks = ", ".join("?" * len(self._numbers))
        where = " AND ".join(f"({self._names}) {sign} ({marks})" for sign, _ in sides) or "true"
        return where, tuple(value for _, key in sides for value in self._stored(key))

    def _stored(self, key: Key) -> tuple[object, ...]:
        return tuple(int(text) if is_number else text for text, is_number in zip(key, self._numbers, strict=True))


class RowWriter(SpoolWriter):
    """Puts the records of pages into a store instead of a spool."""

    def __init__(self, store: RowStore, read: Callable[[Sequence[bytes]], Sequence[tuple[ComparedRow, int]]]) -> None:
        super().__init__(None, None)
        self._store, self._read = store, read

    def write(self, texts: Sequence[bytes]) -> None:
        rows = self._read(texts)
        self._store.add([(row, step) for row, step in rows if not row.is_deleted])
        self.rows += len(texts)
        self.bytes += sum(map(len, texts))


def _halves(digest: str) -> tuple[int, int]:
    return divmod(int(digest[:15], 16), _HALF)


def _key(row: Sequence[object]) -> Key:
    return tuple(map(str, row))
