"""Runs an engine for a pipeline and prints its messages."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import wiring
from penstock.cli.shared.output import Output
from penstock.cli.shared.signals import Signals
from penstock.core.marks import Mark

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.messages import Eof, Message
    from penstock.engine import Engine
    from penstock.links.spark import SharedSpark
    from penstock.ports import Source, Store


def mark_describer(source: Source) -> Callable[[str | None], str]:
    """A function that turns a stored mark into text, in the source's own terms."""
    return lambda mark: source.describe(None if mark is None else Mark(mark))


def run_engine(
    file: File,
    pipeline: str,
    store: Store,
    signals: Signals,
    work: Callable[[Engine], Eof],
    *,
    as_json: bool,
    summary: bool = True,
    live: bool = False,
    hear: Callable[[Message], None] = lambda _: None,
    shared_spark: SharedSpark | None = None,
    to_stderr: bool = False,
) -> int:
    """Run an engine on a pipeline, print its messages (as a live display if `live`), and return the exit code.

    `hear` also receives every message. Pipelines of one command share one Spark. `to_stderr`: standard output is for
    a document of the caller's.
    """
    output = _output(file, pipeline, signals, as_json=as_json, summary=summary, live=live)
    output.to_stderr = to_stderr

    def emit(message: Message) -> None:
        hear(message)
        output.emit(message)

    engine = wiring.assemble(file, pipeline, store=store, emit=emit, shared_spark=shared_spark)
    output.describe_mark = mark_describer(engine.source)
    signals.watch(engine)
    # A run may take hours. Objects that exist by now stay to the end, so the collector skips them.
    gc.freeze()
    gc.enable()
    with output:
        return work(engine).exit_code


def _output(file: File, pipeline: str, signals: Signals, *, as_json: bool, summary: bool, live: bool) -> Output:
    def broken() -> None:
        signals.stop(signal.SIGPIPE)

    several = len(file.pipelines) > 1
    if not live:
        return Output(file.path, pipeline, as_json=as_json, several=several, summary=summary, broken=broken)
    from penstock.cli.display.live import LiveOutput

    return LiveOutput(file.path, pipeline, several=several, stopping=lambda: signals.number is not None, broken=broken)
