"""How an engine is driven for a pipeline, and heard."""

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
    from penstock.ports import Source, Store


def in_words(source: Source) -> Callable[[str | None], str]:
    """Marks as their source says them."""
    return lambda mark: source.describe(None if mark is None else Mark(mark))


def drive(
    file: File,
    pipeline: str,
    store: Store,
    signals: Signals,
    work: Callable[[Engine], Eof],
    *,
    as_json: bool,
    closing: bool = True,
    live: bool = False,
    hear: Callable[[Message], None] = lambda _: None,
    kept: wiring.Kept | None = None,
) -> int:
    """Let an engine work on a pipeline while its messages are shown, as a picture if `live`; the exit code.

    `hear` gets every message too. `kept` is a Spark that several pipelines share.
    """
    output = _output(file, pipeline, signals, as_json=as_json, closing=closing, live=live)

    def emit(message: Message) -> None:
        hear(message)
        output.emit(message)

    engine = wiring.assemble(file, pipeline, store=store, emit=emit, kept=kept)
    output.words = in_words(engine.source)
    signals.watch(engine)
    # From here on it may take hours; what is there by now stays, and need not be gone through.
    gc.freeze()
    gc.enable()
    with output:
        return work(engine).exit_code


def _output(file: File, pipeline: str, signals: Signals, *, as_json: bool, closing: bool, live: bool) -> Output:
    def broken() -> None:
        signals.stop(signal.SIGPIPE)

    several = len(file.pipelines) > 1
    if not live:
        return Output(file.path, pipeline, as_json=as_json, several=several, closing=closing, broken=broken)
    from penstock.cli.display.live import LiveOutput

    return LiveOutput(file.path, pipeline, several=several, stopping=lambda: signals.number is not None, broken=broken)
