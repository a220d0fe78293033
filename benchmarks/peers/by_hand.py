"""The merge that a hand writes: rows put aside in an unlogged table, then one INSERT … ON CONFLICT DO UPDATE."""

from __future__ import annotations

COLUMNS = ("id", "customer_id", "status", "amount", "note", "payload", "created_at", "updated_at")


def aside(table: str) -> str:
    """The statement that makes the table in which rows are put aside; no driver sends jsonb."""
    return (
        f"CREATE UNLOGGED TABLE {table}_aside (id bigint, customer_id integer, status text, amount numeric(12, 2), "
        "note text, payload text, created_at timestamptz, updated_at timestamptz)"
    )


def merge(table: str) -> str:
    """The statement that brings them into the table; what is not newer is left."""
    values = ", ".join("payload::jsonb" if name == "payload" else name for name in COLUMNS)
    sets = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    return (
        f"INSERT INTO {table} AS t ({', '.join(COLUMNS)}) SELECT {values} FROM {table}_aside "
        f"ON CONFLICT (id) DO UPDATE SET {sets} WHERE excluded.updated_at > t.updated_at"
    )


def gone(table: str) -> str:
    """The statement that drops what was put aside."""
    return f"DROP TABLE {table}_aside"
