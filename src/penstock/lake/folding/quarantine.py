"""Lists the ops that state tables have in quarantine. Read from the files of the side data, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import UNTOUCHED, InputError
from penstock.lake import names
from penstock.lake.folding.side_data import kind_of, list_files, read_files
from penstock.lake.lake import Lake
from penstock.lake.tables import extract_state, load_table
from penstock.ports import Quarantined

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: of a document that is not even JSON, in a list
MAX_SHOWN = 200


def count_ops(lake: Lake, table: str) -> int:
    """The number of ops in quarantine, from the manifests alone."""
    return sum(file.record_count for file in _files(lake, table)[1])


def list_ops(lake: Lake, table: str, stream: str, *, limit: int) -> list[Quarantined]:
    """The oldest ops in quarantine; `id` is the place in the list."""
    loaded, files = _files(lake, table)
    if loaded is None or limit <= 0:
        return []
    # A slice's number is part of each file's name.
    ordered = sorted(files, key=lambda file: (_number(file.file_path), file.file_path))
    found: list[Quarantined] = []
    for file in ordered:
        for batch in read_files(loaded.io, [file.file_path]):
            rows = sorted(batch.to_pylist(), key=lambda row: (row["id"], row["b"] or "", row["c"] or ""))
            found += [_quarantined(len(found) + i, stream, row) for i, row in enumerate(rows, 1)]
        if len(found) >= limit:
            break
    return found[:limit]


def refuse_change(verb: str) -> InputError:
    return InputError(
        f"ops of a state table cannot be {verb}: they stay in the table as a record",
        safe=UNTOUCHED,
        next_step="correct the row at the source (an update that changes nothing else is enough): its next op sets the "
        "field. Ops that later ones have overtaken would set an older value",
    )


def _files(lake: Lake, table: str) -> tuple[Any, list[Any]]:
    loaded = load_table(lake, table)
    named = extract_state(loaded).properties.get(names.SIDE) if loaded is not None else None
    if loaded is None or named is None:
        return loaded, []
    try:
        return loaded, [file for file in list_files(loaded, int(named)) if kind_of(file) == "bad"]
    except KeyError:
        return loaded, []


def _number(path: str) -> int:
    about = names.parse_file_name(path.rpartition("/")[2])
    return about[1] if about else 0


def _quarantined(place: int, stream: str, row: dict[str, Any]) -> Quarantined:
    op = (row["b"] or "")[:MAX_SHOWN]
    about = {"document": row["id"], **({"key": _key(row["a"])} if row["a"] else {}), **({"op": op} if op else {})}
    at = _EPOCH + timedelta(microseconds=row["since"] or 0)
    return Quarantined(place, stream, row["number"], json.dumps(about), "", row["c"], at)


def _key(text: str) -> str:
    """The parts of a key, as text."""
    return ", ".join(map(str, json.loads(text)))
