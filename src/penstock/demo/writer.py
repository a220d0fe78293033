"""The shop goes on while penstock works: a thread that changes rows, and larger changes made at once.

One connection, one short transaction after the other: what commits later has a later `updated_at` and a higher
number. (With transactions that overlap, a row may commit below a place that was read already.)
"""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

import psycopg

#: seconds between two rounds of changes
PAUSE = 0.1

#: what happens in the shop all the time, each with what is counted; %(n)s grows by one with every round
ALL_THE_TIME = (
    ("new orders", "INSERT INTO orders (customer_id, amount) SELECT n, n / 3.0 FROM generate_series(1, 5) n"),
    (
        "new order lines",
        """INSERT INTO order_lines (order_id, sku, quantity)
           SELECT id, 'sku-' || id %% 300 + 1, 2 FROM orders ORDER BY id DESC LIMIT 5""",
    ),
    ("changed orders", "UPDATE orders SET status = 'paid' WHERE id BETWEEN 20 * %(n)s AND 20 * %(n)s + 9"),
    ("changed customers", "UPDATE customers SET city = 'Turin' WHERE id = %(n)s"),
    (
        "new events",
        """INSERT INTO events (kind, payload)
           SELECT 'view', jsonb_build_object('page', n, 'round', %(n)s::int) FROM generate_series(1, 10) n""",
    ),
    ("changed prices", "UPDATE products SET price = price + 0.1 WHERE sku = 'sku-' || %(n)s::int %% 300 + 1"),
)

#: what happens at once, while nobody runs
MEANWHILE = (
    ("changed orders", "UPDATE orders SET status = 'sent' WHERE id %% 12 = 0"),
    ("new orders", "INSERT INTO orders (customer_id, amount) SELECT n %% 9 + 1, n FROM generate_series(1, 2000) n"),
    ("changed customers", "UPDATE customers SET likes = likes || '{\"moved\": true}' WHERE id %% 4 = 1"),
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
                turn = 0
                while not self._stop.wait(PAUSE):
                    turn += 1
                    change(connection, ALL_THE_TIME, turn, self.done)
        except psycopg.Error as failure:
            self._failure = failure


def meanwhile(url: str) -> Counter[str]:
    """Many changes at once; what was changed."""
    done: Counter[str] = Counter()
    with psycopg.connect(url, autocommit=True) as connection:
        change(connection, MEANWHILE, 0, done)
    return done


def change(
    connection: psycopg.Connection[tuple[object, ...]],
    changes: tuple[tuple[str, str], ...],
    turn: int,
    done: Counter[str],
) -> None:
    """Carry out each change in a transaction of its own, and count its rows."""
    for what, statement in changes:
        done[what] += connection.execute(statement.encode(), {"n": turn}).rowcount


def told(done: Counter[str]) -> str:
    """What was done, in words."""
    return ", ".join(f"{count:,} {what}" for what, count in done.items() if count)
