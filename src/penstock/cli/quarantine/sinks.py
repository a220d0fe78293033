"""The sinks of a file that can have a quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.errors import UNTOUCHED, InputError

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.ports import Quarantining, Sink

Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", help="Only this row, by its number in the list; may be repeated."),
]


def sink_of(file: File, pipeline: str) -> tuple[Sink, Quarantining] | None:
    """A pipeline's sink, twice: as a sink and as one with a quarantine; None: it puts no rows aside."""
    from penstock import wiring
    from penstock.ports import Quarantining

    sink = wiring.build_sink(file, pipeline)
    if isinstance(sink, Quarantining):
        return sink, sink
    sink.close()
    return None


def require_quarantine(file: File, pipeline: str) -> tuple[Sink, Quarantining]:
    found = sink_of(file, pipeline)
    if found is None:
        raise InputError(
            f"the sink of {pipeline} puts no rows aside: it takes every row",
            safe=UNTOUCHED,
            next_step="name a pipeline whose sink is of type postgres",
        )
    return found


def require_streams(file: File, pipeline: str, sink: Quarantining, streams: Sequence[str]) -> None:
    """Streams that were named must have rows aside."""
    from penstock.core.names import suggest

    known, _ = sink.quarantined([], limit=0)
    for stream in streams:
        if stream not in known:
            raise InputError(
                f"no row of a stream '{stream}' is in quarantine; {suggest(stream, list(known), 'streams')}",
                safe=UNTOUCHED,
                next_step=f"see what is there: penstock quarantine list {file.path} {pipeline}",
            )
