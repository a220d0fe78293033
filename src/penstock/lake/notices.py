"""What those who write to a table should know of its readers, from the metadata alone."""

from __future__ import annotations

from penstock.lake.standing import Standing


def notices(standing: Standing | None, table: str) -> list[str]:
    """Readers that cannot go on, each or all of them; empty: none is known."""
    if standing is None:
        return []
    readers = [reader for reader in standing.readers() if not reader.abandoned]
    if readers and (why := standing.stopped):
        names = ", ".join(f"{reader.pipeline}/{reader.stream}" for reader in readers)
        return [
            f"every reader of {table} stops ({names}): {why}. What lands here is not read until the table is put back, "
            "or `--accept-foreign` of `penstock upkeep` lets them go on from what is there"
        ]
    return [
        f"{reader.pipeline}/{reader.stream}, a reader of {table}, stops: {reader.lost} rows or deletes were removed "
        "before it had seen them. Its next run says how to go on"
        for reader in readers
        if reader.lost
    ]
