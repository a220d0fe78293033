"""A stream's columns as the gate meets them: every change is said once, with what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from penstock.core.content import Content
from penstock.core.drift import FREEZE, QUARANTINE_COLUMN, Change, ChangeKind, list_changes
from penstock.core.messages import Log
from penstock.core.slices import Slice
from penstock.errors import StreamRefused

_STAYS = {
    ChangeKind.ADDED: "the sink gets it",
    ChangeKind.DROPPED: "it stays in the sink, and rows from now on bring no value for it",
    ChangeKind.WIDENED: "the sink's column becomes wider",
    ChangeKind.NARROWED: "the sink's column stays as wide as it is",
    ChangeKind.RETYPED: "the sink's column stays as it is",
}
_QUARANTINE_EFFECTS = {
    ChangeKind.ADDED: f"its values are stored in {QUARANTINE_COLUMN}",
    ChangeKind.WIDENED: "the sink's column stays as it is; values that do not fit it are NULL there and stored "
    f"in {QUARANTINE_COLUMN}",
    ChangeKind.RETYPED: f"the sink's column is NULL from now on, and the values are stored in {QUARANTINE_COLUMN}",
}

#: of a copy that takes the place of the one before
_COPIED = {
    ChangeKind.ADDED: "the new copy has it",
    ChangeKind.DROPPED: "the new copy is without its values",
    **dict.fromkeys((ChangeKind.WIDENED, ChangeKind.NARROWED, ChangeKind.RETYPED), "so is the new copy"),
}


def lines(
    last: Content | None,
    content: Content,
    *,
    whole: bool = False,
    dropped: Collection[str] = (),
) -> list[tuple[Change, str]]:
    """The changes that come with a slice's content, each with a line about it.

    `whole`: of a full refresh. `dropped`: columns that were not renamed, as the user says.
    """
    unfit = content.quarantined
    found = []
    for each in list_changes(last, content):
        change = replace(each, perhaps=None) if each.column in dropped else each
        stays = _COPIED if whole and content.drift is None else _STAYS
        becomes = _QUARANTINE_EFFECTS if change.column in unfit and change.kind in _QUARANTINE_EFFECTS else stays
        found.append((change, f"{change}: {becomes[change.kind]}"))
    return found


def describe_changes(
    stream: str,
    last: Content | None,
    content: Content,
    *,
    whole: bool = False,
    dropped: Collection[str] = (),
) -> Iterator[Log]:
    """What a run says when it has begun a slice with other columns than the last."""
    for change, line in lines(last, content, whole=whole, dropped=dropped):
        is_quarantined = change.column in content.quarantined
        yield Log(level="warning" if is_quarantined else change.level, stream=stream, text=line)


def remind(stream: str, content: Content) -> Iterator[Log]:
    """What is said in every run as long as values may be quarantined."""
    unfit = content.quarantined
    if unfit:
        several = f"{len(unfit)} columns do" if len(unfit) > 1 else "1 column does"
        text = f"{several} not fit the sink ({', '.join(unfit)}): values are stored in its column {QUARANTINE_COLUMN}"
        yield Log(level="warning", stream=stream, text=text)


def describe_missing(slice_: Slice, changed: Sequence[str], policy: str) -> Iterator[Log]:
    """A slice that is open while its source has changed: what it lacks is said, or refused where columns are frozen."""
    if changed and policy == FREEZE:
        raise StreamRefused(
            f"its columns are frozen, and have changed while slice {slice_.number} is open: {'; '.join(changed)}",
            next_step="change the source back; or finish the slice without them by `drift: evolve` on the stream",
            stream=slice_.stream,
        )
    for line in changed:
        yield Log(level="warning", stream=slice_.stream, text=f"slice {slice_.number}: {line}")
