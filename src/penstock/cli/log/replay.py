"""The lines that a run printed, from its messages: the same lines, each with its time."""

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

#: lines of one silence; a clock that was set may make one of years
MOST_SILENT_LINES = 1000


def replay(execution: Execution) -> Iterator[tuple[datetime, Line]]:
    """Every line with its time, those of long silences too."""
    progress = Progress()
    patience = timedelta(seconds=QUIET_SECONDS)
    debug = bool(os.environ.get(TRACEBACK))
    last: datetime | None = None
    for message in execution.messages:
        assert message.ts is not None, "a message without its time is refused when it is read"
        began = last = last or message.ts
        for _ in range(min((message.ts - last) // patience, MOST_SILENT_LINES)):
            last += patience
            yield last, Line(progress_line(progress, last, began, execution.pipeline))
        progress = apply(progress, message)
        for line in lines(message, progress, pipeline=execution.pipeline, describe_mark=str, debug=debug):
            last = message.ts
            yield last, line


def described(execution: Execution) -> Callable[[str | None], str]:
    """How the run's source described each mark; one that it did not describe is printed as it is stored."""
    known: Mapping[str | None, str] = {
        message.mark: message.at
        for message in execution.messages
        if isinstance(message, StateChanged) and message.at is not None
    }
    return lambda mark: known.get(mark, str(mark))
