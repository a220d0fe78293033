"""Recreates the lines that a run printed from its messages, each with its time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from penstock.cli.log.saved_messages import Execution
from penstock.cli.shared.error_report import TRACEBACK
from penstock.cli.shared.quiet_timer import QUIET_SECONDS, progress_line
from penstock.cli.shared.render import Line, lines
from penstock.core.messages import StateChanged
from penstock.core.progress import Progress, apply

#: maximum progress lines for one gap: a changed clock may make a gap of years
MAX_PROGRESS_LINES = 1000


def replay(execution: Execution) -> Iterator[tuple[datetime, Line]]:
    """Every line with its time, including progress lines for long gaps."""
    progress = Progress()
    quiet = timedelta(seconds=QUIET_SECONDS)
    debug = bool(os.environ.get(TRACEBACK))
    last: datetime | None = None
    for message in execution.messages:
        assert message.ts is not None, "messages without a time are refused when they are read"
        began = last = last or message.ts
        for _ in range(min((message.ts - last) // quiet, MAX_PROGRESS_LINES)):
            last += quiet
            yield last, Line(progress_line(progress, last, began, execution.pipeline))
        progress = apply(progress, message)
        for line in lines(message, progress, pipeline=execution.pipeline, describe_mark=str, debug=debug):
            last = message.ts
            yield last, line


def mark_describer(execution: Execution) -> Callable[[str | None], str]:
    """A function that returns the source's own description of a mark, or the stored mark if there is none."""
    known: Mapping[str | None, str] = {
        message.mark: message.at
        for message in execution.messages
        if isinstance(message, StateChanged) and message.at is not None
    }
    return lambda mark: known.get(mark, str(mark))
