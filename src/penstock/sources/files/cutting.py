"""Which files the next slice reads, and in which parts: large files are cut, small ones share a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.documents import Document
from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.sources.files.content import FilesContent, fits, require_columns
from penstock.sources.files.heads import Head
from penstock.sources.files.places import File, Place, shown

#: files of one slice: its spool lists them
SLICE_FILES = 5000
#: Arrow bytes that are worth a part of their own
PART_BYTES = 8 << 20
#: parts for each worker, so that none waits long for the last one
_PARTS_PER_WORKER = 3
#: files of one part
_PART_FILES = 500


@dataclass(frozen=True)
class Chosen:
    """The files of a slice."""

    files: list[File]
    heads: list[Head]
    #: None: not known
    rows: int | None
    #: Arrow bytes to expect
    bytes: int


def choose(
    content: FilesContent,
    files: Sequence[File],
    budget: Budget,
    inspect: Callable[[File], Head],
    place: Place,
    stream: str,
) -> Chosen:
    """The first of these files, up to a budget, all with the same columns. At least one."""
    chosen: list[File] = []
    heads: list[Head] = []
    size = expected = 0
    for file in files[: 1 if budget.look else SLICE_FILES]:
        head = inspect(file)
        bytes_ = expected_bytes(head, budget)
        if chosen and (size + bytes_ > budget.bytes or expected + head.expected_rows > (budget.rows or 1 << 62)):
            break
        if content.declared:
            require_columns(content, file, head, place, stream)
        elif not fits(content, head):
            if chosen:
                break
            raise StreamFailed(
                f"{shown(file.path)} in {place.shown} arrived while the stream was looked at, and has other columns",
                next_step="run again: its columns are then taken into account",
                stream=stream,
            )
        chosen.append(file)
        heads.append(head)
        size, expected = size + bytes_, expected + head.expected_rows
    rows = [head.rows for head in heads]
    return Chosen(chosen, heads, None if None in rows else sum(each or 0 for each in rows), size)


def expected_bytes(head: Head, budget: Budget) -> int:
    """Arrow bytes to expect of a file."""
    return int(head.expected_rows * budget.row_bytes) if budget.row_bytes else head.bytes


def cut_parts(
    content: FilesContent, chosen: Chosen, budget: Budget, place: Place, stream: str
) -> list[list[list[int]]]:
    """The parts: of each, `[file, start, end]` in the order in which the rows apply."""
    parts: list[list[list[int]]] = []
    most = max(PART_BYTES, chosen.bytes // max(1, budget.workers * _PARTS_PER_WORKER))
    size = 0
    format_ = content.reading
    for at, (file, head) in enumerate(zip(chosen.files, chosen.heads, strict=True)):
        bytes_ = expected_bytes(head, budget)
        # Pieces are counted in the file's own bytes.
        share = max(1, most * head.bytes // max(1, bytes_))
        for piece in format_.cut(place, file, head, share, stream):
            weight = piece.bytes * bytes_ // max(1, head.bytes)
            if not parts or size + weight > most or len(parts[-1]) >= _PART_FILES:
                parts.append([])
                size = 0
            parts[-1].append([at, piece.start, piece.end])
            size += weight
    # A slice of empty files has one part without rows.
    return parts or [[]]


def part_terms(files: Sequence[File], pieces: Sequence[Sequence[int]]) -> Document:
    """What a worker needs to read a part: only the files that it reads."""
    used = sorted({piece[0] for piece in pieces})
    at = {index: new for new, index in enumerate(used)}
    return {
        "files": [[files[index].path, *files[index].version] for index in used],
        "pieces": [[at[index], start, end] for index, start, end in pieces],
    }
