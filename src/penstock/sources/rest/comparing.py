"""A rest source whose lists can be compared with a sink: by windows of time, and object by object.

An object is found by its time and its id. Without `changes`, an object may change after it was delivered, so only ids
are compared; with `changes`, the declared columns too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from penstock.core.content import Column, Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.core.subdivision import Span
from penstock.core.subdivision.spans import intersect
from penstock.core.types import INTEGERS, Plain
from penstock.ports import ComparedColumn, ComparedColumns, ComparedRows, Spool, not_comparable
from penstock.sources.rest import marks
from penstock.sources.rest.content import BY_CURSOR, BY_TIME, VERSION, ListContent
from penstock.sources.rest.list_rows import Delivery, IsAwaited, LaterObjects, Listing, ListRows, split_by_time
from penstock.sources.rest.lists import FetchedPage
from penstock.sources.rest.lookups import read_at
from penstock.sources.rest.options import TimeRange, read_time
from penstock.sources.rest.row_digests import RowDigests, explain_no_text, step_of
from penstock.sources.rest.source import RestSource
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.stamps import stamp_event, stamp_page
from penstock.sources.rest.times import Unit

_TIMES = (Plain.TIMESTAMP, Plain.TIMESTAMPTZ, *INTEGERS)
_IDS = (Plain.STRING, *INTEGERS)


class ComparableSource(RestSource):
    """Lists of one API that can be compared with a sink."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: by stream, objects that are listed after everything that was read
        self._later: dict[str, LaterObjects] = {}

    def close(self) -> None:
        super().close()
        self._later.clear()

    def compared_columns(self, stream: str, content: Content) -> ComparedColumns:
        return choose_columns(stream, ListContent.read(content))

    def compared_rows(
        self, stream: str, content: Content, mark: Mark, columns: ComparedColumns, *, above: bool = False
    ) -> ComparedRows:
        if above:
            raise not_comparable(stream, "objects of an API that are not delivered yet are not searched for")
        read = ListContent.read(content)
        return ListRows(
            self._listing(stream, read),
            RowDigests(stream, read, columns),
            columns,
            self._delivery(stream, read, content, mark),
        )

    def _listing(self, stream: str, content: ListContent) -> Listing:
        return Listing(
            self._apis[stream], marks.order_of(content), self._loop, self._workers, self._context.is_cancelled
        )

    def _delivery(self, stream: str, read: ListContent, content: Content, mark: Mark) -> Delivery:
        later = None
        if self._may_move():
            later = self._later.setdefault(stream, LaterObjects(self._listing(stream, read)))
        return Delivery(
            self._compared_spans(stream, read, mark),
            self._find_awaited(stream, read, mark),
            partial(self._find_pending, stream, content, mark),
            later,
        )

    def _compared_spans(self, stream: str, content: ListContent, mark: Mark) -> Sequence[Span]:
        """The times of which every object was delivered, as far as they are still configured."""
        unit = Unit(content.unit)
        given = self._streams[stream].time_range or self._options.time_range or TimeRange()
        configured = Span(
            unit.of(read_time(given.from_)) if given.from_ else None,
            unit.of(read_time(given.to)) if given.to else None,
        )
        covered = marks.read_position(mark).covered
        spans = [found for span in covered if (found := intersect(span, configured)) is not None]
        if not spans:
            raise not_comparable(
                stream,
                "no time of its `time_range` is read to its end yet",
                "run the pipeline to the end first: penstock run FILE",
            )
        return spans

    def _may_move(self) -> bool:
        """Whether an object may get a later time when it changes: `time` may name the time of the last change."""
        return True

    def _find_awaited(self, stream: str, content: ListContent, mark: Mark) -> IsAwaited | None:
        return None

    def _find_pending(self, stream: str, content: Content, mark: Mark) -> Collection[str]:
        """The ids of objects whose changes are still to be delivered, as of now."""
        return ()

    # ------------------------------------------------------------ repairs

    def plan_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> Document:
        columns = choose_columns(stream, ListContent.read(content))
        return {
            "columns": [column.name for column in columns.key],
            "keys": [list(key) for key in keys],
            "deletes": [list(key) for key in deletes],
            "rows": len(keys) + len(deletes),
        }

    def gather_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key], spool: Spool
    ) -> int:
        read, api = ListContent.read(content), self._apis[stream]
        columns = choose_columns(stream, read)
        digests, delivery = RowDigests(stream, read, columns), self._delivery(stream, read, content, mark)
        time_type, unit = columns.key[0].type, Unit(read.unit)
        _, asked = split_by_time([*keys, *deletes], lambda key: step_of(key[0], time_type, unit), delivery.spans)
        times, gone = set(asked.values()), set(deletes)
        lines: dict[Key, bytes] = {}
        listed: set[Key] = set()
        seconds: list[int] = []

        def take(page: FetchedPage) -> None:
            seconds.append(page.second)
            texts = [page.texts[place] for place, (at, _) in enumerate(page.records) if at in times]
            # Lines of a list with `changes` have a stamp already.
            stamped = stamp_page(texts, page.second) if content.changes and read.changes is None else texts
            for row, line in zip(digests.read(texts), stamped, strict=True):
                if row.key not in asked:
                    continue
                listed.add(row.key)
                if row.is_deleted == (row.key in gone):
                    lines[row.key] = line

        self._loop.run(read_at(api, times, self._workers, take))
        unlisted = [key for key in deletes if key in asked and key not in listed]
        moved = delivery.later.read(delivery.spans[-1].ends[1]) if delivery.later and unlisted else ()
        pending = delivery.find_pending() if unlisted else ()
        for key in unlisted:
            if key[1] not in moved and key[1] not in pending:
                lines[key] = _write_delete(read, columns.key[1], key, asked[key], min(seconds))
        writer = SpoolWriter(spool.path, None)
        try:
            writer.write([lines[key] for key in (*keys, *deletes) if key in lines])
        finally:
            writer.close()
        self._context.probe.at("rest.page_spooled")
        return len(lines)


def choose_columns(stream: str, content: ListContent) -> ComparedColumns:
    """What can be compared; NotComparable if the list cannot be compared."""
    if content.mode == BY_CURSOR:
        raise not_comparable(
            stream,
            "its list has no filter by time: it can only be read from its beginning",
            "set `time`, if it has one",
        )
    if content.mode != BY_TIME:
        raise not_comparable(
            stream, "every run reads its whole list again", "penstock run FILE replaces the sink's rows"
        )
    if Unit(content.unit).step > 1:
        raise not_comparable(
            stream,
            "its filter is coarser than its times (`granularity`): single times cannot be read again",
        )
    by_name = {column.name: column for column in content.columns}
    time = by_name[next(name for name, path in content.paths.items() if path == content.time)]
    id_ = by_name[content.id_column]
    for column, types, better in ((time, _TIMES, "timestamptz"), (id_, _IDS, "string")):
        if column.type not in types:
            raise not_comparable(
                stream,
                f"its column {column.name} is {column.type}, which two systems may order differently",
                f"declare it as {better} under `columns`, and reset the stream",
            )
    others = [column for column in content.columns if column not in (time, id_)]
    reasons = {column.name: _explain_skipped(content, column) for column in others}
    return ComparedColumns(
        (_compared(time), _compared(id_)),
        tuple(_compared(column) for column in others if reasons[column.name] is None),
        {name: why for name, why in reasons.items() if why is not None},
        (id_.name,),
    )


def _explain_skipped(content: ListContent, column: Column) -> str | None:
    if content.changes is None:
        return "an object may change after it was delivered, and the stream has no `changes`"
    if column.name == VERSION:
        return None if content.changes.updated else "it is the time at which a row was read"
    return explain_no_text(column.type)


def _compared(column: Column) -> ComparedColumn:
    return ComparedColumn(column.name, column.type)


def _write_delete(content: ListContent, id_: ComparedColumn, key: Key, time: int, second: int) -> bytes:
    """The line of an object that is no longer listed, as of the second in which its page was asked for."""
    unit = Unit(content.unit)
    document: dict[str, Any] = {}
    _put(document, content.time or "", unit.spell(time) if unit.kind == "iso" else time)
    if content.changes is not None and content.changes.updated:
        # The delete is the newest version of the object.
        now = second * unit.ticks
        _put(document, content.changes.updated, unit.spell(now) if unit.kind == "iso" else now)
    _put(document, content.id, int(key[1]) if id_.type in INTEGERS else key[1])
    return stamp_event(json.dumps(document, ensure_ascii=False).encode(), second, 0, is_delete=True)


def _put(document: dict[str, Any], path: str, value: object) -> None:
    """Set the value at a path with dots."""
    *steps, last = path.split(".")
    for step in steps:
        document = document.setdefault(step, {})
    document[last] = value
