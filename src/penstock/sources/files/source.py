"""The files source: what the engine asks, answered from listings of a place and the set of files that were seen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from penstock.core.content import Columns, Content
from penstock.core.documents import Document, Json, canonical, parse
from penstock.core.marks import Mark, Position
from penstock.core.sizes import count_noun
from penstock.core.slices import Kind, Part, Slice
from penstock.errors import UNTOUCHED, ConnectionFailed, PenstockError, StreamRefused, refuse_all
from penstock.links.durable import write_durably
from penstock.ports import Budget, Context, DiscoveredStream, Planned, Reading, Remark, Spool, StreamInfo
from penstock.shaping.resolved_shape import remove_shape
from penstock.sources.files import content as contents
from penstock.sources.files import marks, overlaps
from penstock.sources.files.changes import Candidates, find_candidates
from penstock.sources.files.content import FilesContent, content_of, find_problems
from penstock.sources.files.cutting import Chosen, choose, cut_parts, part_terms
from penstock.sources.files.discovery import discover
from penstock.sources.files.heads import Head
from penstock.sources.files.looking import Look, Settling, list_files
from penstock.sources.files.options import Options, StreamOptions
from penstock.sources.files.places import File, LocalFolder, Version, changed_error, shown
from penstock.sources.files.reader import FilesReader
from penstock.sources.files.rewinding import find_mark
from penstock.sources.files.seen import Seen, SeenStore

#: in the spool of a slice: its parts
_PARTS = "parts.json"


class FilesSource:
    """Files of one place. See `Source` in ports for what each method owes."""

    def __init__(
        self, place: LocalFolder, options: Options, streams: Mapping[str, StreamOptions], context: Context
    ) -> None:
        self._place = place
        self._options = options
        self._streams = dict(streams)
        self._context = context
        #: what the current run reads, by stream
        self._looks: dict[str, Look] = {}
        seconds = options.settle.total_seconds()
        self._settling = {name: Settling(seconds, context.is_cancelled) for name in self._streams}
        #: by stream, ceiling and mark
        self._candidates: dict[tuple[str, str, str], Candidates] = {}
        self._warned: set[tuple[str, str]] = set()
        self._heads: dict[tuple[str, str, File], Head] = {}

    def connect(self) -> None:
        root = self._place.root
        if not os.path.isdir(root):
            what = f"{root} is a file, not a folder" if os.path.exists(root) else f"there is no folder {root}"
            raise ConnectionFailed(
                what,
                next_step="check `directory` of the source, and that its disk is mounted",
                pipeline=self._context.pipeline,
            )

    def close(self) -> None:
        return None

    def catalog(self) -> Sequence[StreamInfo]:
        return [
            StreamInfo(name=name, kind=Kind.ROWS, primary_key=each.primary_key) for name, each in self._streams.items()
        ]

    def discover(self) -> Sequence[DiscoveredStream]:
        return list(discover(self._place, self._options.directory, self._streams))

    def _options_of(self, stream: str) -> StreamOptions:
        if stream not in self._streams:
            raise StreamRefused(
                "the pipeline file does not have this stream", next_step="list it under `streams`", stream=stream
            )
        return self._streams[stream]

    def _store(self, stream: str, *, writes: bool = False) -> SeenStore:
        spools = self._context.spools
        return SeenStore(spools.keep() if writes else spools.find_kept(), stream)

    # ------------------------------------------------------------ columns

    def content(self, stream: str) -> Content:
        options = self._options_of(stream)
        found = None if options.columns else self._columns(stream, options)
        made = content_of(self._options.directory, self._place.root, options, found)
        refuse_all(find_problems(made, stream))
        return made.content()

    def _columns(self, stream: str, options: StreamOptions) -> Columns:
        """The columns of the file that is read next; of text, with the types that were guessed first."""
        last = self._context.last_position(stream)
        before = FilesContent.read(remove_shape(Content.parse(last.content).undrifted)) if last else None
        file = self._next_file(stream, options, last.mark if last else None)
        if file is None:
            if before is not None and before.columns:
                return before.in_files
            raise StreamRefused(
                f"no file in {self._place.root} matches {' or '.join(options.patterns)}, so its columns are not known",
                safe=UNTOUCHED,
                next_step="check `directory` and `path`; or declare `columns`, which allows to start without a file",
                stream=stream,
            )
        reading = content_of(self._options.directory, self._place.root, options, None).reading
        found = reading.guess(self._place, file, stream)
        is_text = options.chosen_format not in ("parquet", "orc")
        if before is None or before.declared or not is_text:
            if not found:
                raise StreamRefused(
                    f"{shown(file.path)} in {self._place.root} is empty, so the columns of the stream are not known",
                    safe=UNTOUCHED,
                    next_step="declare `columns`",
                    stream=stream,
                )
            return found
        if not found:
            return before.in_files
        kept = contents.kept_types if options.chosen_format == "csv" else contents.with_missing
        return kept(found, before.in_files)

    def _next_file(self, stream: str, options: StreamOptions, after: Mark | None) -> File | None:
        """The file that is read next, or else the newest one."""
        look = self._looks.get(stream)
        if look is None or not (found := self._find(stream, look, after).files):
            look = list_files(self._place, options.patterns, options.exclude, options.since)
            found = self._compare(stream, look, after).files
        return next(iter(found), look.files[-1] if look.files else None)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is None:
            return
        seen = marks.read_mark(last.mark)
        before = Content.parse(last.content).identity.get("directory")
        if before is not None and before != content.identity["directory"]:
            raise StreamRefused(
                f"the stream was read from {before}, and `directory` is {content.identity['directory']} now: files of "
                "the same name would be taken for those that were delivered",
                safe=UNTOUCHED,
                next_step="set `directory` back; or give the stream another name, and it begins with every file there",
                stream=stream,
            )
        self._store(stream).require(seen)

    # ------------------------------------------------------------ planning

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return {"look": look.token} if (look := self._look(stream, after)) is not None else None

    def _look(self, stream: str, after: Mark | None) -> Look | None:
        """List the files and wait until those that are new have settled; None: there are none at all."""
        options = self._options_of(stream)
        look = list_files(self._place, options.patterns, options.exclude, options.since)
        if look.links:
            links = count_noun(len(look.links), "symbolic link")
            self._warn(stream, f"left out: {links}, such as {shown(look.links[0])}")
        self._candidates = {}
        if not look.files:
            patterns = " or ".join(options.patterns)
            self._warn(stream, f"no file in {self._place.root} matches {patterns}")
            self._looks.pop(stream, None)
            return None
        new = self._compare(stream, look, after)
        settling = self._settling[stream]
        settling.begin(new.files)
        if settling.must_wait():
            self._begin_others()
        look.unsettled = settling.settle(self._place, new.files)
        if look.unsettled:
            count = count_noun(len(look.unsettled), "file")
            text = f"left to a later run, still being written: {count}, such as {shown(min(look.unsettled))}"
            self._context.say(stream, text)
        self._looks[stream] = look
        return look

    def _warn(self, stream: str, line: str) -> None:
        """Warn once: a run looks several times."""
        if (stream, line) not in self._warned:
            self._warned.add((stream, line))
            self._context.warn(stream, line)

    def _begin_others(self) -> None:
        """See the new files of all streams before one waits, so that the run waits once."""
        for stream, settling in self._settling.items():
            if settling.has_begun:
                continue
            # A stream that is refused says so when its turn comes.
            with suppress(PenstockError):
                options, last = self._options_of(stream), self._context.last_position(stream)
                look = list_files(self._place, options.patterns, options.exclude, options.since)
                settling.begin(self._compare(stream, look, last.mark if last else None).files)

    def _compare(self, stream: str, look: Look, after: Mark | None) -> Candidates:
        """The files of a look that were not seen yet; StreamRefused where the policy stands against a change."""
        table = self._store(stream).table(marks.read_mark(after))
        return find_candidates(self._options_of(stream), self._place, look, table, stream)

    def _find(self, stream: str, look: Look, after: Mark | None) -> Candidates:
        """The same for a look of this run, without files that are still being written."""
        key = (stream, look.token, after.text if after else "")
        if key not in self._candidates:
            found = self._compare(stream, look, after)
            for line in found.warnings:
                self._warn(stream, line)
            files = [file for file in found.files if file.path not in look.unsettled]
            self._candidates[key] = Candidates(files)
        return self._candidates[key]

    def _next(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> tuple[Look, list[File], Chosen] | None:
        """The files of the next slice."""
        look = self._looks.get(stream)
        if look is None or look.token != ceiling["look"]:
            # A ceiling of another process.
            look = self._look(stream, after)
        files = self._find(stream, look, after).files if look is not None else []
        if look is None or not files:
            return None
        own = FilesContent.read(content)
        inspect = partial(self._inspect, own, stream)
        return look, files, choose(own, files, budget, inspect, self._place, stream)

    def _inspect(self, content: FilesContent, stream: str, file: File) -> Head:
        key = (stream, content.content().text, file)
        if key not in self._heads:
            self._heads[key] = content.reading.inspect(self._place, file, stream)
        return self._heads[key]

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        found = self._next(stream, content, after, ceiling, budget)
        if found is None:
            return None
        _, _, chosen = found
        seen = marks.read_mark(after)
        recent = {file.path: file for file in (*seen.recent, *chosen.files)}
        upto = Seen(
            seen.segments, tuple(sorted(recent.values())), seen.files + len(chosen.files), chosen.files[-1].path
        )
        return Planned(marks.make_mark(upto), rows=chosen.rows, exact=chosen.rows is not None)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        """Write the list of a slice's parts into the spool, and the set of seen files that its mark names.

        No row is read: a file that is as it was gives the same rows again, and any other is refused.
        """
        found = self._next(stream, content, after, ceiling, budget)
        if found is None:
            return None
        look, files, chosen = found
        parts = cut_parts(FilesContent.read(content), chosen, budget, self._place, stream)
        terms = [part_terms(chosen.files, pieces) for pieces in parts]
        # A file without rows has no piece, and is in no part.
        listed: list[list[Json]] = [[file.path, *file.version] for file in chosen.files]
        write_durably(os.path.join(spool.path, _PARTS), canonical({"files": listed, "parts": terms}))
        store = self._store(stream, writes=True)
        upto = store.add(marks.read_mark(after), chosen.files)
        store.write(upto)
        mark = marks.make_mark(upto)
        self._candidates[(stream, look.token, mark.text)] = Candidates(files[len(chosen.files) :])
        self._heads = {}
        return Planned(mark, rows=chosen.rows, exact=chosen.rows is not None)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        terms = self._check_files(slice_)
        parts = [Part(index, canonical(each)) for index, each in enumerate(terms)]
        yield Reading(FilesReader(self._place, slice_.stream, slice_.content), parts)

    def check_open_slice(self, slice_: Slice) -> None:
        self._check_files(slice_)

    def _check_files(self, slice_: Slice) -> list[Document]:
        """The parts of a slice; StreamFailed if one of its files is not as it was."""
        folder = self._context.spools.find_gathered(slice_.stream, slice_.spool)
        if folder is None:
            raise StreamRefused(
                f"the spool of slice {slice_.number} is gone or damaged",
                next_step=f"drop the slice with `penstock state recover FILE --stream {slice_.stream}`: the next slice "
                "is planned again",
                stream=slice_.stream,
            )
        with open(os.path.join(folder, _PARTS), encoding="ascii") as file:
            document = parse(file.read())
        for path, *version in document["files"]:
            planned, now = File(path, Version(*version)), self._place.version(path)
            if now != planned.version:
                raise changed_error(self._place, planned, now, slice_.stream)
        parts: list[Document] = document["parts"]
        return parts

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        options = self._options_of(stream)
        look = list_files(self._place, options.patterns, options.exclude, options.since)
        return find_mark(self._store(stream, writes=True), look, to, stream)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        options = self._options_of(stream)
        last = self._context.last_position(stream)
        table = self._store(stream).table(marks.read_mark(last.mark if last else None))
        return overlaps.explain(self._place, self._streams, stream, FilesContent.read(content), options, table)
