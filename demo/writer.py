"""Changes the shop while penstock runs: a thread with small changes, and one batch of larger changes.

One connection runs short transactions one after another, so a later commit has a later `updated_at` and a higher id.
(With overlapping transactions, a row may commit below a mark that was already read.)
"""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

import psycopg

#: seconds between two rounds of changes
ROUND_SECONDS = 0.1

#: the changes of each round with their names; %(n)s is the number of the round
ROUND_CHANGES = (
    ("new orders", "INSERT INTO orders (sku, amount) SELECT 'sku-' || n, n / 3.0 FROM generate_series(1, 5) n"),
    ("changed orders", "UPDATE orders SET status = 'paid' WHERE id BETWEEN 20 * %(n)s AND 20 * %(n)s + 9"),
    (
        "new events",
        """INSERT INTO events (kind, payload)
           SELECT 'view', jsonb_build_object('page', n, 'round', %(n)s::int) FROM generate_series(1, 10) n""",
    ),
    ("changed prices", "UPDATE products SET price = price + 0.1 WHERE sku = 'sku-' || %(n)s::int %% 300 + 1"),
)

#: the changes made in one batch while no run is active
BATCH_CHANGES = (
    ("changed orders", "UPDATE orders SET status = 'sent' WHERE id %% 12 = 0"),
    ("new orders", "INSERT INTO orders (sku, amount) SELECT 'sku-1', n FROM generate_series(1, 2000) n"),
    ("changed prices", "UPDATE products SET price = price + 1"),
)


class Writer:
    """Changes rows while it is open; `done` counts them."""

    def __init__(self, url: str) -> None:
        self.done: Counter[str] = Counter()
        self._url = url
        self._stop = threading.Event()
        self._failure: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._write, name="penstock-demo-writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _write(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                number = 0
                while not self._stop.wait(ROUND_SECONDS):
                    number += 1
                    change(connection, ROUND_CHANGES, number, self.done)
        except psycopg.Error as failure:
            self._failure = failure


def change_many(url: str) -> Counter[str]:
    """Make the batch of changes, and return the row counts."""
    done: Counter[str] = Counter()
    with psycopg.connect(url, autocommit=True) as connection:
        change(connection, BATCH_CHANGES, 0, done)
    return done


def change(
    connection: psycopg.Connection[tuple[object, ...]],
    changes: tuple[tuple[str, str], ...],
    number: int,
    done: Counter[str],
) -> None:
    """Make each change in its own transaction, and count its rows."""
    for what, statement in changes:
        done[what] += connection.execute(statement.encode(), {"n": number}).rowcount


def describe(done: Counter[str]) -> str:
    """The row counts as text."""
    return ", ".join(f"{count:,} {what}" for what, count in done.items() if count)
