"""Builds the sinks that have a quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import UNTOUCHED, InputError

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.ports import Quarantining, Sink

Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", help="Only this row, by its number in the list. May be repeated."),
]


def sink_of(file: File, pipeline: str) -> tuple[Sink, Quarantining] | None:
    """A pipeline's sink, as a Sink and as a Quarantining; None if it has no quarantine."""
    from penstock import wiring
    from penstock.ports import Quarantining, capability

    sink = wiring.build_sink(file, pipeline)
    quarantine = capability(sink, Quarantining)
    if quarantine is None:
        sink.close()
        return None
    return sink, quarantine


@contextmanager
def open_quarantine(
    path: str, sets: Sequence[str], pipeline: str | None, command: str, streams: Sequence[str] | None
) -> Iterator[tuple[File, str, Sink, Quarantining]]:
    """The file, the chosen pipeline and its sink, in both roles; InputError if the sink has no such rows.

    `command` is the command without the pipeline, for the next step of an error.
    """
    from penstock import wiring
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, command)
    sink, quarantine = require_quarantine(file, name)
    with closing(sink):
        require_rows(file, name, quarantine, streams)
        yield file, name, sink, quarantine


def require_quarantine(file: File, pipeline: str) -> tuple[Sink, Quarantining]:
    sides = sink_of(file, pipeline)
    if sides is None:
        others = [each for each in file.pipelines if each != pipeline and _has_quarantine(file, each)]
        raise InputError(
            f"the sink of {pipeline} has no quarantine",
            safe=UNTOUCHED,
            next_step=f"choose one of: {', '.join(others)}" if others else "none: no sink of this file has one",
        )
    return sides


def _has_quarantine(file: File, pipeline: str) -> bool:
    sides = sink_of(file, pipeline)
    if sides is not None:
        sides[0].close()
    return sides is not None


def require_rows(file: File, pipeline: str, sink: Quarantining, streams: Sequence[str] | None) -> None:
    """Raise InputError for a named stream without rows in quarantine."""
    if not streams:
        return
    from penstock.core.names import suggest

    known, _ = sink.quarantined([], limit=0)
    for stream in streams:
        if stream not in known:
            raise InputError(
                f"stream '{stream}' has no rows in quarantine; {suggest(stream, list(known), 'streams')}",
                safe=UNTOUCHED,
                next_step=f"list the rows: penstock quarantine list {file.path} {pipeline}",
            )
