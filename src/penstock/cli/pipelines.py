"""Which pipelines a command is about, and how an engine is driven for one."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock import wiring
from penstock.cli.output import Output
from penstock.cli.signals import Signals
from penstock.config.mistakes import suggest
from penstock.core.marks import Mark
from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.messages import Eof
    from penstock.engine import Engine
    from penstock.ports import Source, Store

UNTOUCHED = "Nothing was read or written."


def chosen(file: File, names: Sequence[str] | None) -> list[str]:
    """The pipelines that were named; all if none was."""
    known = list(file.pipelines)
    for name in names or ():
        if name not in known:
            raise InputError(
                f"there is no pipeline '{name}' in {file.path}; {suggest(name, known, 'pipelines')}",
                safe=UNTOUCHED,
                next_step="name one of the file's pipelines",
            )
    return list(dict.fromkeys(names)) if names else known


def only(file: File, name: str | None, how: str) -> str:
    """The one pipeline that a command is about. `how`: how to name it."""
    names = chosen(file, [name] if name else None)
    if len(names) > 1:
        raise InputError(
            f"{file.path} has {len(names)} pipelines: {', '.join(names)}",
            safe=UNTOUCHED,
            next_step=f"name one of them: {how}",
        )
    return names[0]


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
) -> int:
    """Let an engine work on a pipeline while its messages are printed; the exit code."""
    output = Output(
        file.path,
        pipeline,
        as_json=as_json,
        closing=closing,
        broken=lambda: signals.stop(signal.SIGPIPE),
    )
    engine = wiring.assemble(file, pipeline, store=store, emit=output.emit)
    output.words = in_words(engine.source)
    signals.watch(engine)
    # From here on it may take hours; what is there by now stays, and need not be gone through.
    gc.freeze()
    gc.enable()
    return work(engine).exit_code
