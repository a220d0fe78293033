"""The set of files that a stream has seen: exact, and small in the mark however large it is.

The newest files are in the mark itself. Older ones are in segments: files that are never changed, named by the digest
of what they hold, in the pipeline's folder for spools. A mark names the segments. A segment is durable before an intent
names it, and none is ever removed: every mark that the store, its history or a sink holds can be read.

A segment that is written is merged with the ones before it until each is several times larger than the next, so that a
set of millions has a handful of segments, and a file is written again only a few times.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import UNTOUCHED, StreamRefused
from penstock.links.durable import make_folder, sync
from penstock.sources.files.places import File, Version

if TYPE_CHECKING:
    import pyarrow as pa

#: files that a mark lists itself; more of them become a segment
RECENT_FILES = 64
#: each segment has at least this many times as many files as the next one
_RATIO = 4
_FOLDER = "files-seen"


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with a part of the set."""

    digest: str
    files: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The set, as a mark names it. A path has one version: that of the newest entry."""

    #: the oldest first
    segments: tuple[Segment, ...] = ()
    #: by path
    recent: tuple[File, ...] = ()
    #: files that were ever added; one that was added in two versions counts twice
    files: int = 0
    #: of the file that was added last
    last: str = ""


class MissingSegment(Exception):
    """A segment is gone or damaged."""


@dataclass
class SeenStore:
    """Reads and writes segments. `folder` is the pipeline's own; nothing is made there before something is written."""

    folder: str
    stream: str
    _tables: dict[str, Any] = field(default_factory=dict)

    def path(self, segment: Segment) -> str:
        return os.path.join(self._folder, f"{segment.digest}.parquet")

    @property
    def _folder(self) -> str:
        return os.path.join(self.folder, _FOLDER, quote(self.stream, safe="").replace(".", "%2E"))

    def require(self, seen: Seen) -> None:
        """StreamRefused if a segment is missing; its contents are checked when it is read."""
        for segment in seen.segments:
            if segment.digest not in self._tables and not os.path.isfile(self.path(segment)):
                raise self._refused(segment, "is missing")

    def table(self, seen: Seen) -> pa.Table:
        """The whole set: each path once, with its newest version."""
        tables = [_table(seen.recent), *(self._read(segment) for segment in reversed(seen.segments))]
        return _merge(tables)

    def _read(self, segment: Segment) -> pa.Table:
        if segment.digest not in self._tables:
            import pyarrow as pa
            import pyarrow.parquet as pq

            try:
                table = pq.read_table(self.path(segment), partitioning=None).cast(_schema())
            except FileNotFoundError:
                raise self._refused(segment, "is missing") from None
            except (OSError, pa.ArrowException) as error:
                raise self._refused(segment, f"cannot be read ({error})") from None
            if _digest(table) != segment.digest:
                raise self._refused(segment, "is damaged: its digest is another one")
            self._tables[segment.digest] = table
        return self._tables[segment.digest]

    def _refused(self, segment: Segment, what: str) -> StreamRefused:
        return StreamRefused(
            f"{self.path(segment)} {what}: it lists {segment.files:,} files that were delivered, and without it they "
            "would be delivered again",
            safe=UNTOUCHED,
            next_step="put the file back from a backup of the folder for spools; or, if the sink may get every row "
            f"again, `penstock state reset FILE --stream {self.stream}`; `penstock rewind FILE --to now --stream "
            f"{self.stream}` takes every file that is there now as delivered",
            stream=self.stream,
        )

    def add(self, seen: Seen, files: Sequence[File]) -> Seen:
        """The set with more files; StreamRefused if a segment that is merged cannot be read. Writes nothing."""
        recent = {each.path: each for each in (*seen.recent, *files)}
        total, last = seen.files + len(files), (files[-1].path if files else seen.last)
        if len(recent) <= RECENT_FILES:
            return Seen(seen.segments, tuple(sorted(recent.values())), total, last)
        segments, tables = list(seen.segments), [_table(tuple(recent.values()))]
        while segments and segments[-1].files < _RATIO * sum(table.num_rows for table in tables):
            tables.append(self._read(segments.pop()))
        table = _merge(tables)
        made = Segment(_digest(table), table.num_rows)
        self._tables[made.digest] = table
        return Seen((*segments, made), (), total, last)

    def write(self, seen: Seen) -> None:
        """Write the segments that do not exist yet. They are durable when this returns."""
        for segment in seen.segments:
            if not os.path.isfile(self.path(segment)):
                self._write(segment)

    def _write(self, segment: Segment) -> None:
        import pyarrow.parquet as pq

        make_folder(self._folder, 0o700)
        temporary = os.path.join(self._folder, f".{os.getpid()}-{os.urandom(4).hex()}")
        pq.write_table(
            self._tables[segment.digest],
            temporary,
            compression="zstd",
            use_dictionary=False,
            # Paths are sorted: this keeps of each only what differs from the one before.
            column_encoding={"path": "DELTA_BYTE_ARRAY", "size": "PLAIN", "mtime": "PLAIN", "inode": "PLAIN"},
        )
        sync(temporary)
        os.rename(temporary, self.path(segment))
        sync(self._folder)


@dataclass(frozen=True)
class Compared:
    """What a listing and a set say of each other."""

    #: files that are not in the set, in the order of the listing
    new: list[File]
    #: files whose path is in the set in another version, with that one
    changed: list[tuple[File, Version]]
    #: files that are not in the set, while the same inode, size and time is there under a path that is gone
    renamed: list[tuple[File, str]]
    #: paths of the set that are not listed
    vanished: int
    #: one of them
    vanished_example: str = ""


def compare(table: pa.Table, listed: Sequence[File]) -> Compared:
    """Compare a listing with the set."""
    import numpy as np
    import pyarrow.compute as pc

    if not table.num_rows:
        return Compared(list(listed), [], [], 0)
    here = _columns(listed)
    found = pc.index_in(here["path"], value_set=table["path"].combine_chunks())
    known = found.is_valid().to_numpy(zero_copy_only=False)
    at = found.drop_null().to_numpy()
    same = np.ones(len(at), dtype=bool)
    for name in ("size", "mtime", "inode"):
        mine = here[name].to_numpy(zero_copy_only=False)[known]
        same &= mine == table[name].to_numpy()[at]
    where = np.flatnonzero(known)
    changed = []
    for place, index in zip(where[~same].tolist(), at[~same].tolist(), strict=True):
        changed.append((listed[place], _file(table, index).version))
    gone = np.ones(table.num_rows, dtype=bool)
    gone[at] = False
    unknown = [listed[place] for place in np.flatnonzero(~known).tolist()]
    renamed = _find_renamed(table.filter(gone), unknown) if gone.any() else []
    moved = {file.path for file, _ in renamed}
    new = [file for file in unknown if file.path not in moved]
    vanished = int(gone.sum())
    example = _file(table, int(np.flatnonzero(gone)[0])).path if vanished else ""
    return Compared(new, changed, renamed, vanished, example)


def _find_renamed(gone: pa.Table, unknown: Sequence[File]) -> list[tuple[File, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    inodes = pa.array([file.version.inode for file in unknown], pa.uint64())
    found = pc.index_in(inodes, value_set=gone["inode"].combine_chunks()).to_pylist()
    renamed = []
    for file, index in zip(unknown, found, strict=True):
        if index is not None and _file(gone, index).version == file.version:
            renamed.append((file, _file(gone, index).path))
    return renamed


# ---------------------------------------------------------------- tables


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"path": pa.large_binary(), "size": pa.int64(), "mtime": pa.int64(), "inode": pa.uint64()}
    return pa.schema(list(types.items()))


def _columns(files: Iterable[File]) -> Mapping[str, pa.Array]:
    import pyarrow as pa

    rows = list(files)
    values = {
        "path": [os.fsencode(path) for path, _ in rows],
        "size": [version.size for _, version in rows],
        "mtime": [version.mtime for _, version in rows],
        "inode": [version.inode for _, version in rows],
    }
    return {each.name: pa.array(values[each.name], each.type) for each in _schema()}


def _table(files: Iterable[File]) -> pa.Table:
    import pyarrow as pa

    return pa.table(dict(_columns(files)), schema=_schema())


def _merge(newest_first: Sequence[pa.Table]) -> pa.Table:
    """One table, sorted by path; of two versions the one of the newer table."""
    import numpy as np
    import pyarrow as pa

    ages = np.concatenate([np.full(table.num_rows, age) for age, table in enumerate(newest_first)])
    whole = pa.concat_tables(newest_first).append_column("age", pa.array(ages, pa.int64()))
    whole = whole.sort_by([("path", "ascending"), ("age", "ascending")]).combine_chunks()
    if whole.num_rows > 1:
        paths = whole["path"].combine_chunks()
        repeated = pa.compute.equal(paths.slice(1), paths.slice(0, len(paths) - 1))
        first = pa.array(np.concatenate([[True], ~repeated.to_numpy(zero_copy_only=False)]))
        whole = whole.filter(first)
    return whole.drop_columns(["age"]).combine_chunks()


def _digest(table: pa.Table) -> str:
    """The digest of what a sorted table holds, whatever wrote its file."""
    import numpy as np
    import pyarrow.compute as pc

    state = hashlib.sha256(b"penstock files seen 1")
    paths = table["path"].combine_chunks()
    lengths = pc.binary_length(paths).to_numpy(zero_copy_only=False).astype("<i8")
    for numbers in (lengths, *(table[name].to_numpy() for name in ("size", "mtime", "inode"))):
        state.update(np.ascontiguousarray(numbers).astype(f"<{numbers.dtype.kind}8").tobytes())
    if len(paths):
        data, first = paths.buffers()[2], paths.offset
        offsets = np.frombuffer(paths.buffers()[1], dtype=np.int64)[first : first + len(paths) + 1]
        state.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    return state.hexdigest()


def _file(table: pa.Table, index: int) -> File:
    row = {name: table[name][index].as_py() for name in table.column_names}
    return File(os.fsdecode(row["path"]), Version(row["size"], row["mtime"], row["inode"]))
