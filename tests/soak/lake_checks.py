"""What the lake's soak must have left behind, read with plain PyIceberg and Arrow."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.soak.lake_feed import Feed

SEQ, TOMBSTONE = "_ingest_seq", "_tombstone"
#: a row of the log is known by its writer and its place there
Row = tuple[int, int]
#: the current row of a key, without what the lake adds
State = dict[int, tuple[int, int, str]]


@dataclass
class Findings:
    """What is wrong, in words, and what was counted."""

    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.faults.append(otherwise)


def open_table(folder: Path, namespace: str, table: str) -> Table:
    """As anyone would, without penstock."""
    lake = folder / "lake"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake / 'catalog.db'}?timeout=60", warehouse=f"file://{lake}")
    return catalog.load_table((namespace, table))


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(table["writer"].to_pylist(), table["place"].to_pylist(), strict=True))


def once(findings: Findings, where: str, rows: list[Row], wanted: set[Row]) -> None:
    """Every row exactly once, and no other."""
    count = Counter(rows)
    twice = [row for row, times in count.items() if times > 1]
    findings.must(not twice, f"{where}: {len(twice)} rows twice, for example {sorted(twice)[:5]}")
    missing, strange = wanted - count.keys(), count.keys() - wanted
    findings.must(not missing, f"{where}: {len(missing)} rows missing, for example {sorted(missing)[:5]}")
    findings.must(not strange, f"{where}: {len(strange)} strange rows, for example {sorted(strange)[:5]}")


def in_order(findings: Findings, where: str, rows: list[Row], numbers: dict[Row, int]) -> None:
    """The rows come in the order of their numbers in the log."""
    order = np.array([numbers.get(row, -1) for row in rows])
    wrong = np.flatnonzero(order[1:] <= order[:-1])
    findings.must(
        not len(wrong),
        f"{where}: {len(wrong)} rows out of order, for example at {wrong[:3].tolist()}: "
        f"{[(rows[i], int(order[i]), rows[i + 1], int(order[i + 1])) for i in wrong[:3]]}",
    )


# ---------------------------------------------------------------- the log


def check_log(folder: Path, feeds: dict[str, Feed], polled: pa.Table, findings: Findings) -> None:
    """The log, its two readers and the poller against the writers' sources."""
    wanted = {row for feed in feeds.values() for row in rows_of(feed.everything())}
    findings.counts["rows"] = len(wanted)
    seen = rows_of(polled)
    once(findings, "the poller, by head", seen, wanted)
    numbers = dict(zip(seen, polled[SEQ].to_pylist(), strict=True))
    findings.must(len(set(numbers.values())) == len(numbers), "the log handed out a number twice")
    in_order(findings, "the writers' rows", sorted(seen, key=lambda row: numbers[row]), numbers)
    for writer in {row[0] for row in wanted}:
        places = [place for _, place in sorted((numbers[row], row[1]) for row in seen if row[0] == writer)]
        findings.must(places == sorted(places), f"writer {writer}: its rows are not in the order of its source")
    _check_log_table(folder, wanted, numbers, findings)
    _check_files(folder, wanted, numbers, findings)
    _check_copy(folder, wanted, numbers, findings)


def _check_log_table(folder: Path, wanted: set[Row], numbers: dict[Row, int], findings: Findings) -> None:
    """What retention left: rows above the floor, all of them, once, with the numbers they always had."""
    table = open_table(folder, "log", "events")
    floor = int(table.properties.get("penstock.floor", "0"))
    head = int(table.properties["penstock.head"])
    held = table.scan().to_arrow()
    rows, found = rows_of(held), held[SEQ].to_pylist()
    findings.counts |= {"rows_in_log": len(rows), "rows_removed": len(wanted) - len(rows)}
    above = {row for row in wanted if numbers.get(row, floor + 1) > floor}
    once(findings, "the log above its floor", [r for r, n in zip(rows, found, strict=True) if n > floor], above)
    once(findings, "the log", rows, set(rows) | above)
    moved = [(row, numbers.get(row), n) for row, n in zip(rows, found, strict=True) if numbers.get(row) != n]
    findings.must(not moved, f"the log: {len(moved)} rows have another number than before: {moved[:3]}")
    findings.must(max(found, default=0) <= head, "the log: a number above the head")
    marks = [name for name in table.properties if name.startswith("penstock.reader.")]
    findings.must(len(marks) == 3, f"the log has the readers {marks}")


def _check_files(folder: Path, wanted: set[Row], numbers: dict[Row, int], findings: Findings) -> None:
    found = sorted((folder / "out" / "events").glob("*.parquet"), key=_file_order)
    rows = [row for path in found for row in rows_of(pq.ParquetFile(path).read())]
    once(findings, "the files", rows, wanted)
    in_order(findings, "the files", rows, numbers)


def _file_order(path: Path) -> tuple[int, ...]:
    """Slice, part and piece, which the name tells."""
    found = re.fullmatch(r"(\d+)-[0-9a-z]+-(\d+)-(\d+)\.parquet", path.name)
    assert found is not None, path.name
    return tuple(int(text) for text in found.groups())


def _check_copy(folder: Path, wanted: set[Row], numbers: dict[Row, int], findings: Findings) -> None:
    copy = open_table(folder, "copy", "events").scan().to_arrow().sort_by(SEQ)
    own = copy[SEQ].to_pylist()
    findings.must(len(set(own)) == len(own), "the other lake table handed out a number twice")
    once(findings, "the other lake table", rows_of(copy), wanted)
    in_order(findings, "the other lake table", rows_of(copy), numbers)


# ---------------------------------------------------------------- the keyed table


def check_keyed(folder: Path, feed: Feed, findings: Findings) -> None:
    """Table, merged copy and log of versions against the current state of the source."""
    changes = feed.everything().to_pylist()
    wanted: State = {}
    deleted: set[int] = set()
    for row in changes:
        wanted.pop(row["key"], None)
        deleted.discard(row["key"])
        if row["_change"] == "delete":
            deleted.add(row["key"])
        else:
            wanted[row["key"]] = (row["place"], row["version"], row["body"])
    findings.counts |= {"changes": len(changes), "keys": len(wanted), "keys_deleted": len(deleted)}
    table = open_table(folder, "keyed", "items").scan().to_arrow()
    again = open_table(folder, "again", "items").scan().to_arrow()
    versions = open_table(folder, "versions", "items").scan().to_arrow()
    for where, rows in (("the keyed table", table), ("its merged copy", again)):
        keys = Counter(rows["key"].to_pylist())
        twice = [key for key, times in keys.items() if times > 1]
        findings.must(not twice, f"{where}: keys with two rows: {twice[:5]}")
    for where, rows in (("the keyed table", table), ("its merged copy", again), ("its versions", versions)):
        live, gone = state_of(rows)
        _same(findings, where, live, wanted)
        findings.must(gone <= deleted, f"{where}: tombstones of keys that live: {sorted(gone - deleted)[:5]}")


def state_of(rows: pa.Table) -> tuple[State, set[int]]:
    """The newest row of each key by its number, and the keys whose newest row is a tombstone."""
    live: State = {}
    gone: set[int] = set()
    for row in rows.sort_by(SEQ).to_pylist():
        live.pop(row["key"], None)
        gone.discard(row["key"])
        if row[TOMBSTONE]:
            gone.add(row["key"])
        else:
            live[row["key"]] = (row["place"], row["version"], row["body"])
    return live, gone


def _same(findings: Findings, where: str, found: State, wanted: State) -> None:
    wrong: list[Any] = [
        (key, found.get(key), wanted.get(key))
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    ]
    findings.must(not wrong, f"{where}: {len(wrong)} keys differ (found, wanted): {wrong[:3]}")
