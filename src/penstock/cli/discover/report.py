"""The report of `discover` as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock import wiring
from penstock.cli.init.file_text import value
from penstock.cli.shared.inspection import describe_reading
from penstock.cli.shared.render import align, print_json, size
from penstock.config import File
from penstock.ports import DiscoveredStream, StreamInfo, discover

_HEAD = ("stream", "what", "rows", "size", "key", "synced", "proposal")


def print_tables(file: File, pipeline: str, *, columns: bool, why: bool, as_json: bool) -> None:
    """Print every table that a pipeline's source has."""
    source = wiring.build_source(file, pipeline)
    try:
        source.connect()
        infos = {info.name: info for info in source.catalog()}
        streams = [_document(offered, infos.get(offered.read_by or "")) for offered in discover(source)]
    finally:
        source.close()
    if as_json:
        print_json({"file": file.path, "pipeline": pipeline, "streams": streams}, indent=2)
        return
    head, *rows = align([_HEAD, *map(_row, streams)])
    print(head)
    for stream, row in zip(streams, rows, strict=True):
        print(row)
        if columns:
            print("\n".join(f"    {each['name']}: {each['type']}" for each in stream["columns"]))
        if why:
            reasons = [stream["refused"]] if stream["refused"] else stream["reasons"]
            print("\n".join(f"    # {reason}" for reason in reasons))


def _document(offered: DiscoveredStream, info: StreamInfo | None) -> dict[str, Any]:
    """A table, and the stream that reads it."""
    return {
        "stream": offered.name,
        "what": offered.what,
        "rows": offered.rows,
        "bytes": offered.bytes,
        "primary_key": list(offered.primary_key),
        "synced": info is not None and info.skipped is None,
        "synced_as": info.name if info else None,
        "how": describe_reading(info) if info and info.skipped is None else None,
        "proposal": dict(offered.options) if offered.refused is None else None,
        "reasons": list(offered.reasons),
        "refused": offered.refused,
        "columns": [{"name": name, "type": type_} for name, type_ in offered.columns],
    }


def _row(stream: Mapping[str, Any]) -> Sequence[str]:
    rows, bytes_ = stream["rows"], stream["bytes"]
    synced = stream["how"] or "no"
    if stream["synced"] and stream["synced_as"] != stream["stream"]:
        synced = f"as {stream['synced_as']}, {synced}"
    return (
        stream["stream"],
        stream["what"],
        "?" if rows is None else f"~{rows:,}",
        "" if bytes_ is None else size(bytes_),
        ", ".join(stream["primary_key"]) or "none",
        synced,
        "cannot be read" if stream["refused"] else value(stream["proposal"]),
    )
