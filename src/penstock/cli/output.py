"""Where a pipeline's messages go: lines for people or JSON for machines; errors to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from penstock.cli.render import Line, lines
from penstock.cli.report import TRACEBACK, filled, say
from penstock.core.messages import ConnectionStatus, Eof, Message, StreamStatus, encode
from penstock.core.progress import Progress, apply


class Output:
    """Prints the messages of one pipeline as they come."""

    def __init__(
        self, file: str, pipeline: str, *, as_json: bool, closing: bool = True, broken: Callable[[], None]
    ) -> None:
        self._file = file
        self._pipeline = pipeline
        self._as_json = as_json
        #: whether the totals are of interest
        self._closing = closing
        #: called when nobody reads our output any more
        self._broken = broken
        self._progress = Progress()
        #: says a mark in words; the source's own, once there is one
        self.words: Callable[[str | None], str] = str

    def emit(self, message: Message) -> None:
        """Print a message; the engine's `emit`."""
        if isinstance(message, StreamStatus | ConnectionStatus | Eof) and message.next_step:
            message = replace(message, next_step=filled(message.next_step, self._file))
        self._progress = apply(self._progress, message)
        for line in self._lines(message):
            if line.error:
                say(line.text)
            elif not self._as_json:
                self._print(line.text)
        if self._as_json:
            self._print(encode(message))

    def _lines(self, message: Message) -> list[Line]:
        if isinstance(message, Eof) and not self._closing and not message.exit_code:
            return []
        debug = bool(os.environ.get(TRACEBACK))
        return lines(message, self._progress, pipeline=self._pipeline, words=self.words, debug=debug)

    def _print(self, text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # Go on to a clean end, saying nothing; Python itself would complain once more at its own end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._broken()
