"""Changes marks for an operator: prints what will happen, asks for confirmation, and lets the engine do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from penstock import wiring
from penstock.cli.shared.confirm import confirm
from penstock.cli.shared.engine_run import run_engine
from penstock.cli.shared.signals import Signals
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipeline
from penstock.core.messages import Eof
from penstock.engine import Engine
from penstock.errors import UNTOUCHED, InputError
from penstock.ports import Store

#: what will happen, as text, and the engine's part of it
Prepared = tuple[Sequence[str], Callable[[Engine], Eof]]


def operate(
    path: str,
    sets: Sequence[str],
    pipeline: str | None,
    command: str,
    prepare: Callable[[File, str], Prepared],
    *,
    yes: bool,
    as_json: bool,
) -> int:
    """Carry out an operator's command on one pipeline, and return the exit code.

    `command` is the command without the pipeline, for the next step of an error.
    """
    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, command)
    lines, work = prepare(file, name)
    confirm(lines, yes=yes, to_stderr=as_json)
    with closing(wiring.open_store(file)) as store, Signals() as signals:
        return run_engine(file, name, store, signals, work, as_json=as_json, summary=False)


@contextmanager
def existing_store(file: File, verb: str) -> Iterator[Store]:
    """Open the file's store; InputError if there is none, because these commands must not create it."""
    if missing := wiring.missing_store(file):
        raise InputError(
            f"there is no store at {missing}: no pipeline of this file has run yet, so there is nothing to {verb}",
            safe=UNTOUCHED,
            next_step="penstock run FILE",
        )
    with closing(wiring.open_store(file)) as store:
        yield store
