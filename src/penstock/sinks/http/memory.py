"""What an http sink remembers beyond a slice, in a small database beside the spools.

The last slice that a receiver without a chain of its own was sent, and the rows that no receiver took. Every change is
one transaction on disk before anybody relies on it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice
from penstock.errors import StoreRefused, StreamFailed
from penstock.ports import Held, Quarantined, Spools

_FILE = "http.db"
#: seconds to wait for another process that writes
_LOCK_SECONDS = 30.0
#: a chunk number for rows that were in no chunk
NO_CHUNK = 0
#: the version of the tables
FORMAT = 1
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS sent (
    stream TEXT PRIMARY KEY, number INTEGER NOT NULL, slice TEXT NOT NULL, mark TEXT, content TEXT NOT NULL,
    rows INTEGER NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS emptied (
    stream TEXT NOT NULL, slice TEXT NOT NULL, number INTEGER NOT NULL, chunk INTEGER NOT NULL,
    PRIMARY KEY (stream, slice, chunk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, slice TEXT NOT NULL, number INTEGER NOT NULL,
    chunk INTEGER NOT NULL, place INTEGER NOT NULL, head TEXT NOT NULL, row TEXT NOT NULL,
    key TEXT NOT NULL, code TEXT NOT NULL,
    reason TEXT NOT NULL, at TEXT NOT NULL, UNIQUE (stream, slice, chunk, place)
);
PRAGMA user_version = {FORMAT};
COMMIT;
"""

# No names, and no ids: all.
_COUNT_ROWS = """
SELECT stream, count(*) FROM quarantine WHERE (:streams = '[]' OR stream IN (SELECT value FROM json_each(:streams)))
GROUP BY stream ORDER BY stream
"""
_LIST_ROWS = """
SELECT id, stream, number, key, code, reason, at FROM quarantine
WHERE (:streams = '[]' OR stream IN (SELECT value FROM json_each(:streams))) ORDER BY id LIMIT :limit
"""
_ROWS_OF = """
SELECT id, slice, chunk, head, row FROM quarantine
WHERE (:streams = '[]' OR stream IN (SELECT value FROM json_each(:streams)))
    AND (:ids = '[]' OR id IN (SELECT value FROM json_each(:ids))) ORDER BY id
"""
_DROP_ROWS = """
DELETE FROM quarantine WHERE (:streams = '[]' OR stream IN (SELECT value FROM json_each(:streams)))
    AND (:ids = '[]' OR id IN (SELECT value FROM json_each(:ids)))
"""
_REFUSE_ROWS = """
UPDATE quarantine SET code = :code, reason = :reason WHERE (:ids = '[]' OR id IN (SELECT value FROM json_each(:ids)))
"""
_HAS_ANY = """
SELECT EXISTS (SELECT 1 FROM emptied WHERE stream = :stream) OR EXISTS (SELECT 1 FROM quarantine WHERE stream = :stream)
"""
#: characters of a row that a list shows
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row in quarantine, as it came."""

    id: int
    slice: str
    chunk: int
    #: canonical JSON: the path and headers of its request alone; "": it has none
    head: str
    row: str


@dataclass(frozen=True)
class Memory:
    """Of one pipeline. Opened for each question, so that processes share it."""

    spools: Spools

    # ------------------------------------------------------------ the last slice

    def last_sent(self, stream: str) -> Held | None:
        """The last slice that was sent whole; None: nothing is remembered."""
        with self._read() as db:
            query = "SELECT number, slice, mark, content, rows, bytes FROM sent WHERE stream = ?"
            found = db.execute(query, (stream,)).fetchone() if db else None
        if found is None:
            return None
        number, slice_id, mark, content, rows, bytes_ = found
        return Held(Position(number, slice_id, Mark(mark) if mark is not None else None, content), rows, bytes_)

    def note_sent(self, slice_: Slice, rows: int, bytes_: int) -> bool:
        """Remember a slice in the place of its predecessor; False: another one is remembered."""
        with self._write() as db:
            found = db.execute("SELECT slice FROM sent WHERE stream = ?", (slice_.stream,)).fetchone()
            last = str(found[0]) if found else ""
            if last == slice_.previous:
                self._note(db, slice_.stream, slice_.position, rows, bytes_)
            return last in (slice_.previous, slice_.id)

    def adopt(self, stream: str, position: Position) -> None:
        """Take over what the store says, where nothing is remembered."""
        with self._write() as db:
            if db.execute("SELECT 1 FROM sent WHERE stream = ?", (stream,)).fetchone() is None:
                self._note(db, stream, position, 0, 0)

    def _note(self, db: sqlite3.Connection, stream: str, at: Position, rows: int, bytes_: int) -> None:
        values = (stream, at.number, at.id, at.mark.text if at.mark else None, at.content, rows, bytes_)
        db.execute("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    # ------------------------------------------------------------ the quarantine

    def emptied(self, stream: str, slice_id: str) -> frozenset[int]:
        """Chunks of a slice that were put into quarantine: another one without rows takes their number."""
        with self._read() as db:
            query = "SELECT chunk FROM emptied WHERE stream = ? AND slice = ?"
            return frozenset(chunk for (chunk,) in db.execute(query, (stream, slice_id))) if db else frozenset()

    def quarantine(self, slice_: Slice, chunk: int, rows: Sequence[Sequence[str]], *, code: str, reason: str) -> None:
        """Keep the rows of a chunk, which is recorded as empty in the same transaction. Idempotent.

        Each row comes with what its request has beside its body ("": nothing).
        """
        now = datetime.now(UTC).isoformat()
        columns = Content.parse(slice_.content).key
        with self._write() as db:
            about = (slice_.stream, slice_.id, slice_.number, chunk)
            values = [
                (*about, place, head, row, _key_of(row, columns), code, reason, now)
                for place, (row, head) in enumerate(rows)
            ]
            db.executemany(
                "INSERT OR IGNORE INTO quarantine "
                "(stream, slice, number, chunk, place, head, row, key, code, reason, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            if chunk != NO_CHUNK:
                db.execute("INSERT OR IGNORE INTO emptied VALUES (?, ?, ?, ?)", (*about[:3], chunk))

    def sweep(self, stream: str, held: Position) -> None:
        """Forget the rows of slices that were withdrawn or dropped: they have come again in the one that is held."""
        with self._read() as db:
            if db is None or not db.execute(_HAS_ANY, {"stream": stream}).fetchone()[0]:
                return
        with self._write() as db:
            db.execute("DELETE FROM emptied WHERE stream = ? AND number <= ?", (stream, held.number))
            query = "DELETE FROM quarantine WHERE stream = ? AND number = ? AND slice <> ?"
            db.execute(query, (stream, held.number, held.id))

    def count_of(self, stream: str, slice_id: str) -> int:
        """Rows of a slice that are in quarantine."""
        with self._read() as db:
            query = "SELECT count(*) FROM quarantine WHERE stream = ? AND slice = ?"
            return int(db.execute(query, (stream, slice_id)).fetchone()[0]) if db else 0

    def count_rows(self, streams: Sequence[str]) -> dict[str, int]:
        """Rows in quarantine by stream; no names: all streams."""
        with self._read() as db:
            return dict(db.execute(_COUNT_ROWS, _lists(streams))) if db else {}

    def list_rows(self, streams: Sequence[str], limit: int) -> list[Quarantined]:
        """The oldest rows in quarantine."""
        with self._read() as db:
            if db is None:
                return []
            found = db.execute(_LIST_ROWS, _lists(streams) | {"limit": limit})
            return [
                Quarantined(id_, name, number, key, code, reason, datetime.fromisoformat(at))
                for id_, name, number, key, code, reason, at in found
            ]

    def rows_of(self, stream: str, ids: Sequence[int]) -> list[KeptRow]:
        """Rows of a stream, oldest first; no ids: all of them."""
        with self._read() as db:
            return [KeptRow(*each) for each in db.execute(_ROWS_OF, _lists([stream], ids))] if db else []

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        """Delete rows; their number."""
        if not os.path.exists(self._path):
            return 0
        with self._write() as db:
            return db.execute(_DROP_ROWS, _lists(streams, ids)).rowcount

    def refuse_again(self, ids: Sequence[int], code: str, reason: str) -> None:
        """Give rows a new reason: they were tried again and refused again."""
        with self._write() as db:
            db.execute(_REFUSE_ROWS, _lists([], ids) | {"code": code, "reason": reason})

    # ------------------------------------------------------------ the file

    @property
    def _path(self) -> str:
        return os.path.join(self.spools.find_kept(), _FILE)

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection | None]:
        """None: nothing was ever remembered."""
        if not os.path.exists(self._path):
            yield None
            return
        with self._open() as db:
            yield db

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        self.spools.keep()
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_LOCK_SECONDS, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version > FORMAT:
                    raise StoreRefused(
                        f"a newer penstock has written {self._path} (version {version}; this one knows {FORMAT})",
                        next_step="run the newer penstock; the file says which slice was sent last",
                    )
                if version < FORMAT:
                    db.executescript(SCHEMA)
                yield db
        except sqlite3.Error as error:
            raise StreamFailed(
                f"the http sink cannot use {self._path}: {error}",
                next_step="make room, or correct the rights of this file, and run again; if it is damaged, put it back "
                "from a copy. Do not delete it: it says which slice was sent last",
            ) from error


def _lists(streams: Sequence[str], ids: Sequence[int] = ()) -> dict[str, str | int]:
    return {"streams": json.dumps(list(streams)), "ids": json.dumps(list(ids))}


def _key_of(row: str, columns: Sequence[str]) -> str:
    """By which people know a row: the columns of its key, or how it begins."""
    document = json.loads(row)
    known = document if isinstance(document, dict) and columns and all(each in document for each in columns) else None
    return json.dumps({each: known[each] for each in columns} if known else {"row": row[:_SHOWN_CHARACTERS]})
