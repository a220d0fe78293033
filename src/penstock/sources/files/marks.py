"""Marks of a files stream: the set of files that were seen. What is in a mark of a slice is there for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.marks import Mark
from penstock.core.sizes import count_noun
from penstock.errors import StreamRefused
from penstock.sources.files.places import File, Version, shown
from penstock.sources.files.seen import Seen, Segment

#: the version of this form
_FORM = 1
_HEX = frozenset("0123456789abcdef")


def make_mark(seen: Seen) -> Mark:
    """`recent` is sorted by path: of each, how many characters it shares with the one before, and the rest."""
    return Mark.of(
        {
            "seen": _FORM,
            "files": seen.files,
            "last": seen.last,
            "segments": [[each.digest, each.files] for each in seen.segments],
            "recent": list(_shortened(seen.recent)),
        }
    )


def _shortened(files: Sequence[File]) -> Iterator[list[int | str]]:
    before = ""
    for path, version in files:
        shared = _count_shared(before, path)
        yield [shared, path[shared:], *version]
        before = path


def _count_shared(one: str, other: str) -> int:
    """The characters with which two strings begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def read_mark(mark: Mark | None) -> Seen:
    """The set; StreamRefused if the mark is not one of ours."""
    if mark is None:
        return Seen()
    document: dict[str, Any] = mark.document
    try:
        if document["seen"] != _FORM:
            raise ValueError("another form")
        segments = tuple(Segment(digest, int(files)) for digest, files in document["segments"])
        if any(len(each.digest) != 64 or not _HEX.issuperset(each.digest) for each in segments):
            raise ValueError("not a digest")
        recent, before = [], ""
        for shared, rest, size, mtime, inode in document["recent"]:
            before = before[: int(shared)] + rest
            recent.append(File(before, Version(int(size), int(mtime), int(inode))))
        return Seen(segments, tuple(recent), int(document["files"]), str(document["last"]))
    except (KeyError, TypeError, ValueError):
        text = mark.text if len(mark.text) < 200 else mark.text[:200] + "…"
        raise StreamRefused(
            f"the mark {text} is not one of a files stream",
            next_step="`penstock state reset` starts the stream from the beginning",
        ) from None


def describe(mark: Mark | None) -> str:
    if mark is None:
        return "the beginning"
    seen = read_mark(mark)
    last = f", last {shown(seen.last)}" if seen.last else ""
    return f"{count_noun(seen.files, 'file')} seen{last}"
