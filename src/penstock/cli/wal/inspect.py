"""`penstock wal inspect`: shows each log: segments, producers, readers, and what is damaged or was cut off."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.shared.parameters import EnvFile, Json, Set, Streams
from penstock.cli.shared.receiver_directory import Directory, ReceiverFile, receiver_place
from penstock.cli.wal.streams import choose_streams

if TYPE_CHECKING:
    from penstock.wal.inspection import LogState
    from penstock.wal.lag import ReaderLag
    from penstock.wal.ledger import SentSlice


def inspect(
    file: ReceiverFile = None,
    directory: Directory = None,
    stream: Streams = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Show the log of each stream: its segments, its producers, its readers, what is damaged and what was cut off.

    \b
    Examples:
      penstock wal inspect --directory received
      penstock wal inspect lake.yaml --stream orders --json

    Changes nothing, and needs no lock: it may run beside a receiver and beside runs. It reads the head of each record;
    `penstock wal verify` reads all of it. A segment is deleted when every reader is past it; without a reader,
    everything is kept.
    """
    with receiver_place(file, directory, set_ or (), as_json=as_json) as place:
        from penstock.cli.shared.render import print_json
        from penstock.wal.inspection import inspect_log
        from penstock.wal.lag import measure_lag

        now = time.time_ns() // 1000
        documents = []
        for name, folder in choose_streams(place, stream).items():
            lag = measure_lag(folder, now)
            state = inspect_log(folder)
            readers = lag.readers if lag else ()
            documents.append(_document(name, folder, state, readers, now))
            if not as_json:
                print("\n".join(_lines(documents[-1])))
        if as_json:
            print_json({"directory": place.directory, "streams": documents}, indent=2)
        elif not documents:
            print(f"No streams in {place.directory}: nothing was sent to this receiver yet.")


def _document(stream: str, folder: str, state: LogState, readers: tuple[ReaderLag, ...], now: int) -> dict[str, Any]:
    producers = state.ledger.producers if state.ledger else {}
    segments = [
        {
            "segment": each.number,
            "bytes": each.bytes,
            "created": _time(each.created),
            "age_seconds": max(0, now - each.created) / 1_000_000 if each.created else None,
            "batches": each.batches,
            "rows": each.rows,
            "damaged": len(each.damages),
        }
        for each in state.segments
    ]
    return {
        "stream": stream,
        "folder": folder,
        "log": state.log or None,
        "bytes": state.bytes,
        "batches": state.end.batches if state.end else None,
        "rows": state.end.rows if state.end else None,
        "end": {"segment": state.end.segment, "offset": state.end.offset} if state.end else None,
        "floor": state.floor,
        "segments": segments,
        "missing": list(state.missing),
        "ledger": "whole" if state.ledger is not None or not state.segments else "damaged",
        "producers": [
            {"producer": name, "last": describe_slice(each.last), "open": describe_slice(each.open)}
            for name, each in sorted(producers.items())
        ],
        "readers": [describe_reader(each) for each in readers],
        "damages": [
            {"segment": each.number, "offset": damage.offset, "end": damage.end, "reason": damage.reason}
            for each in state.segments
            for damage in each.damages
        ],
        "kept": [
            {
                "file": os.path.basename(each.path),
                "what": each.what,
                "segment": each.segment,
                "offset": each.offset,
                "bytes": each.bytes,
            }
            for each in state.kept
        ],
    }


def describe_slice(sent: SentSlice | None) -> dict[str, Any] | None:
    """A slice of a producer as JSON."""
    if sent is None:
        return None
    return {
        "slice": sent.slice,
        "number": sent.number,
        "predecessor": sent.predecessor,
        "held": len(sent.digests),
        "chunks": sent.chunks,
        "rows": sent.rows,
    }


def describe_reader(lag: ReaderLag) -> dict[str, Any]:
    """A reader as JSON, with what it has not delivered yet."""
    return {
        "reader": lag.name,
        "slice": lag.number,
        "segment": lag.place[0],
        "offset": lag.place[1],
        "at": _time(lag.at),
        "batches": lag.batches,
        "rows": lag.rows,
        "bytes": lag.bytes,
        "seconds": lag.seconds,
    }


def describe_lag(reader: dict[str, Any]) -> str:
    """`3 batches, 1,200 rows, 80.0 KiB behind, the oldest for 2 min 5 s`; `has read everything`."""
    from penstock.cli.shared.render import count, size, span

    if not reader["batches"]:
        return "has read everything"
    behind = f"{count_batches(reader['batches'])}, {count(reader['rows'], 'row')}, {size(reader['bytes'])}"
    return f"{behind} behind, the oldest for {span(reader['seconds'])}"


def count_batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"


def _time(microseconds: int) -> str | None:
    from datetime import UTC, datetime

    from penstock.core.messages import stamp

    return stamp(datetime.fromtimestamp(microseconds / 1_000_000, UTC)) if microseconds else None


def _lines(log: dict[str, Any]) -> list[str]:
    from penstock.cli.shared.render import align, count, size, span

    total = f"{count_batches(log['batches'])}, {count(log['rows'], 'row')} so far" if log["end"] else ""
    kept = f"{count(len(log['segments']), 'segment')}, {size(log['bytes'])} kept"
    lines = [f"{log['stream']}: {'; '.join(each for each in (total, kept) if each)}"]
    if log["segments"]:
        head = ("SEGMENT", "BYTES", "AGE", "BATCHES", "ROWS", "DAMAGED")
        table = [
            (
                str(each["segment"]),
                f"{each['bytes']:,}",
                "?" if each["age_seconds"] is None else span(each["age_seconds"]),
                f"{each['batches']:,}",
                f"{each['rows']:,}",
                str(each["damaged"] or ""),
            )
            for each in log["segments"]
        ]
        lines += [f"  {line}" for line in align([head, *table], right={0, 1, 2, 3, 4, 5})]
    if log["end"]:
        lines.append(f"  durable up to {log['end']['segment']}:{log['end']['offset']} (segment:offset)")
    elif log["segments"]:
        lines.append("  durable end: not known; start `penstock serve` once, which writes it again")
    if log["floor"] > 1:
        lines.append(f"  segments before {log['floor']} were read by all readers and deleted")
    if log["ledger"] == "damaged":
        lines.append("  producers: not known, because no copy of the ledger is whole")
    for each in log["producers"]:
        last, opened = each["last"], each["open"]
        held = f"slice {last['number']} ({_short(last['slice'])})" if last else "no whole slice"
        lines.append(f"  producer {each['producer']}: {held}")
        if opened:
            lines[-1] += (
                f"; slice {opened['number']} ({_short(opened['slice'])}) is open: "
                f"{opened['held']} of {count(opened['chunks'], 'chunk')} held"
            )
    for each in log["readers"]:
        lines.append(
            f"  reader {each['reader']}: at {each['segment']}:{each['offset']}, slice {each['slice']}; "
            f"{describe_lag(each)}"
        )
    if not log["readers"] and log["segments"]:
        lines.append("  no readers: everything is kept until a pipeline reads it")
    lines += [f"  missing: segment {number}" for number in log["missing"]]
    lines += [f"  damaged: {each['segment']}:{each['offset']}: {each['reason']}" for each in log["damages"]]
    words = {"torn": "cut off the end", "damaged": "copy of a damaged record"}
    for each in log["kept"]:
        place = f"{each['segment']}:{each['offset']}"
        lines.append(f"  {words[each['what']]}: {count(each['bytes'], 'byte')} from {place}, kept in {each['file']}")
    return lines


def _short(slice_: str) -> str:
    return f"{slice_[:12]}…" if len(slice_) > 13 else slice_
