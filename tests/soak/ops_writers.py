"""Writers of the fault run of change ops: transactions of every kind, without pause, in the tables that are tracked."""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from tests.harness.postgres import newest_programs

TABLES = """
CREATE TABLE posts (id bigint PRIMARY KEY, title text);
CREATE TABLE images (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, post_id bigint REFERENCES posts, url text, size int, stars int);
CREATE TABLE image_tags (
    image_id bigint REFERENCES images ON DELETE CASCADE, tag int, PRIMARY KEY (image_id, tag));
INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 40) n;
INSERT INTO images (post_id, url, size) SELECT 1 + n % 40, 'image ' || n, n FROM generate_series(1, 4000) n;
INSERT INTO image_tags SELECT n, n % 7 FROM generate_series(1, 4000) n
"""

#: what one transaction of a writer may do, each with its weight; %(n)s is a random number
STATEMENTS: Sequence[tuple[int, str]] = (
    (
        6,
        "INSERT INTO images (post_id, url, size) SELECT 1 + %(n)s %% 40, 'new', k FROM generate_series(1, 3) k",
    ),
    (8, "UPDATE images SET size = %(n)s, url = url || '!' WHERE id %% 400 = %(n)s %% 400"),
    (4, "UPDATE images SET stars = %(n)s %% 6 WHERE id %% 300 = %(n)s %% 300"),
    (5, "UPDATE images SET post_id = 1 + %(n)s %% 40 WHERE id %% 500 = %(n)s %% 500"),
    (
        6,
        "INSERT INTO image_tags SELECT id, %(n)s %% 9 FROM images WHERE id %% 350 = %(n)s %% 350 ON CONFLICT "
        "DO NOTHING",
    ),
    (5, "DELETE FROM image_tags WHERE image_id %% 450 = %(n)s %% 450"),
    (3, "UPDATE posts SET title = 'title ' || %(n)s WHERE id = 1 + %(n)s %% 40"),
    (3, "DELETE FROM images WHERE id %% 900 = %(n)s %% 900"),
)
#: of transactions: rolled back; rolled back in part; prepared; with a pause before the commit
ROLLED_BACK, IN_PART, PREPARED, SLOW = 0.08, 0.08, 0.05, 0.3
#: seconds between two truncations
TRUNCATED = (20.0, 60.0)
_PROCESSED = re.compile(r"transactions actually processed: (\d+)")
#: the server's answers to writers that are in each other's way
CONFLICTS = (psycopg.errors.DeadlockDetected, psycopg.errors.ForeignKeyViolation, psycopg.errors.LockNotAvailable)


@contextmanager
def writing(url: str, writers: int, seed: int, counted: Counter[str]) -> Iterator[None]:
    """Writers at work until the block ends; every transaction has ended then."""
    end = threading.Event()
    with ThreadPoolExecutor(writers + 1) as pool:
        going = [pool.submit(_write, url, random.Random(seed * 1000 + n), end, counted) for n in range(writers)]
        going.append(pool.submit(_truncate, url, random.Random(seed * 1000 + 999), end, counted))
        try:
            yield
        finally:
            end.set()
        for each in going:
            each.result()


@contextmanager
def pgbench(url: str, counted: Counter[str]) -> Iterator[None]:
    """pgbench's own transactions, in tables of its own, on the same server until the block ends."""
    program = str(newest_programs() / "pgbench")
    subprocess.run([program, "-i", "-q", "-s", "1", url], check=True, capture_output=True)
    end, words = threading.Event(), [program, "-n", "-c", "4", "-R", "200", "-T", "5", url]

    def run() -> None:
        while not end.is_set():
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            counted["pgbench"] += int(_PROCESSED.search(done.stdout)[1])  # type: ignore[index]

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run)
        try:
            yield
        finally:
            end.set()
        going.result()


def _write(url: str, chance: random.Random, end: threading.Event, counted: Counter[str]) -> None:
    statements, weights = [text for _, text in STATEMENTS], [weight for weight, _ in STATEMENTS]
    with psycopg.connect(url, autocommit=True) as db:
        while not end.wait(chance.uniform(0.0, 0.05)):
            db.execute("BEGIN")
            try:
                db.execute("SET LOCAL lock_timeout = '5s'")
                for text in chance.choices(statements, weights, k=chance.randint(1, 4)):
                    with_savepoint = chance.random() < IN_PART
                    if with_savepoint:
                        db.execute("SAVEPOINT before")
                    db.execute(text, {"n": chance.randint(1, 1_000_000)})
                    if with_savepoint:
                        db.execute("ROLLBACK TO SAVEPOINT before")
                    if chance.random() < SLOW:
                        time.sleep(chance.uniform(0.0, 0.5))
                counted[_end_transaction(db, chance)] += 1
            except CONFLICTS:
                db.execute("ROLLBACK")
                counted["conflict"] += 1


def _end_transaction(db: psycopg.Connection[Any], chance: random.Random) -> str:
    drawn = chance.random()
    if drawn < ROLLED_BACK:
        db.execute("ROLLBACK")
        return "rolled back"
    if drawn < ROLLED_BACK + PREPARED:
        name = f"soak {chance.getrandbits(64):x}"
        db.execute(f"PREPARE TRANSACTION '{name}'")
        time.sleep(chance.uniform(0.0, 1.0))
        db.execute(f"COMMIT PREPARED '{name}'")
        return "prepared"
    db.execute("COMMIT")
    return "committed"


def _truncate(url: str, chance: random.Random, end: threading.Event, counted: Counter[str]) -> None:
    """Empty the tags from time to time; once in four times, all images."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET lock_timeout = '2s'")
        while not end.wait(chance.uniform(*TRUNCATED)):
            tables = "images, image_tags" if chance.random() < 0.25 else "image_tags"
            with suppress(*CONFLICTS):
                db.execute(f"TRUNCATE {tables}".encode())
                counted[f"truncated {tables}"] += 1
