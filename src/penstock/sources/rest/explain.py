"""What holds for a stream as it is configured, what does not, and what would be better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from penstock.core.sizes import shown_duration
from penstock.ports import Remark
from penstock.sources.rest.content import BY_CURSOR, BY_TIME, ListContent
from penstock.sources.rest.options import StreamOptions


def remarks(options: StreamOptions, content: ListContent) -> Sequence[Remark]:
    return list(_remarks(options, content))


def _remarks(options: StreamOptions, content: ListContent) -> Iterator[Remark]:
    if content.mode == BY_CURSOR:
        yield Remark("guarantee", "every object is delivered once, in the order of the list, whatever is interrupted")
        yield Remark("gap", "an object that appears before the last one that was read is missed")
        return
    if content.parent:
        yield Remark(
            "guarantee",
            f"every run reads the list for each object of {content.parent}, and replaces what the run before delivered",
        )
        yield Remark("gap", "it costs a request for each parent in every run; a run that is killed begins again")
        yield Remark("gap", "a parent that is created while the list is read is missed until the next run")
        return
    if content.mode != BY_TIME or options.time is None:
        yield Remark("guarantee", "every run reads the whole list, and replaces what the run before has delivered")
        yield Remark(
            "gap", "an object that is created or deleted while the list is read may be missed until the next run"
        )
        yield from _explain_counts(options)
        yield Remark("advice", "if the API filters by a time, set `time`: a run then reads only new objects")
        return
    if content.changes is not None:
        yield from _explain_changes(options)
    else:
        yield Remark(
            "guarantee", f"every object is delivered once, by its {options.time.field}, whatever is interrupted"
        )
        yield Remark("gap", "changes and deletes of objects that were delivered are not seen")
        yield Remark("gap", f"an object that is listed again with another {options.time.field} is delivered again")
    if options.time.granularity is not None:
        coarse = shown_duration(timedelta(seconds=options.time.granularity))
        yield Remark("gap", f"the filter rounds to {coarse}: objects are read, and read again, once that time is over")
    elif options.time.unit == "iso":
        yield Remark(
            "advice",
            "if the API rounds the times of its filter to minutes or days, set `granularity` under `time`: otherwise "
            "objects are missed",
        )
    lag = options.time.lag
    yield Remark("gap", f"an object that appears more than {lag:g} s after its {options.time.field} may be missed")
    if options.paging.by in ("page", "offset"):
        yield Remark(
            "gap",
            "pages are counted: if an object is deleted while others of the same time are read, one may be missed",
        )


def _explain_counts(options: StreamOptions) -> Iterator[Remark]:
    """What holds for a list that is read whole, page by counted page."""
    if options.paging.by == "offset":
        how = "each page begins with the last object of the page before it"
    elif options.paging.by == "page":
        how = "each page is asked for twice"
    else:
        return
    yield Remark("guarantee", f"pages are counted, so {how}: an object that is deleted meanwhile hides no other")
    yield Remark(
        "gap", "an object may be missed until the next run if others are deleted and created between two requests"
    )


def _explain_changes(options: StreamOptions) -> Iterator[Remark]:
    changes, time = options.changes, options.time
    assert changes is not None
    assert time is not None
    yield Remark("guarantee", f"every object is delivered, by its {time.field}, and its versions in their order")
    if changes.rescan is not None:
        often = f"every {shown_duration(changes.every)}" if changes.every else "in every run"
        yield Remark(
            "guarantee",
            f"objects created in the last {shown_duration(changes.rescan)} are read again {often}, with their changes",
        )
        yield Remark("gap", "changes of older objects are not seen, nor objects that the API no longer lists")
        if changes.updated is None:
            yield Remark(
                "advice", "with `updated`, objects that have not changed would not be delivered again and again"
            )
    elif changes.updated == time.field:
        yield Remark("gap", "an object that the API no longer lists is not seen as deleted")
    elif changes.updated or changes.deleted:
        yield Remark("gap", "objects are not read again: changes of those that were delivered are not seen")
        yield Remark("advice", "set `rescan` under `changes`, or let `time` name the field of the last change")
