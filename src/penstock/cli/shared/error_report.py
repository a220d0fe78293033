"""Prints errors: what happened, what is safe, what to do next. Prints a traceback only on request."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from penstock.errors import Interrupted, PenstockError, filled

TRACEBACK = "PENSTOCK_TRACEBACK"


@contextmanager
def report_errors(file: str, *, as_json: bool = False, dated: bool = False) -> Iterator[None]:
    """Print an error and exit with its code; with `as_json` print an `eof` message too.

    `dated` puts the time before each line unless standard error is a terminal.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except PenstockError as error:
        named = error.pipeline if error.pipeline and _has_several(file) else None
        error.next_step = filled(error.next_step, file, named, error.stream)
        _print_dated(f"error: {error}", dated)
        code = error.code if isinstance(error, Interrupted) else error.exit_code
        if as_json:
            _eof(error.what, code, error.next_step)
        raise typer.Exit(code) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # the reader of our output has exited; Typer ends without a message
        what = f"unexpected {type(error).__name__}: {error}"
        next_step = f"this is a bug in penstock: please report it with the output under {TRACEBACK}=1"
        _print_dated(
            f"error: {what}\nNothing was lost: a mark moves only after its slice is committed.\nNext: {next_step}",
            dated,
        )
        if os.environ.get(TRACEBACK):
            import traceback

            traceback.print_exc()
        if as_json:
            _eof(what, 1, next_step)
        raise typer.Exit(1) from None


def _has_several(path: str) -> bool:
    """Whether a pipeline file has several pipelines, so that a next step must name one."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError):
        return False  # not a pipeline file: the error that is being reported says so
    pipelines = document.get("pipelines") if isinstance(document, dict) else None
    return isinstance(pipelines, dict) and len(pipelines) > 1


def _print_dated(text: str, dated: bool) -> None:
    if dated and not sys.stderr.isatty():
        from penstock.cli.shared import render
        from penstock.wiring import SystemClock

        text = render.dated(text, SystemClock().now())
    print_error(text)


def print_error(text: str) -> None:
    """Print text on standard error."""
    print(text, file=sys.stderr, flush=True)


def _eof(what: str, code: int, next_step: str) -> None:
    from penstock.core.messages import Eof, Log, encode
    from penstock.wiring import SystemClock

    now = SystemClock().now()
    status = "interrupted" if code > 128 else "failed"
    eof = Eof(status=status, exit_code=code, has_more=False, reason=what, next_step=next_step)
    for message in (Log(level="error", text=what), eof):
        print(encode(message.stamped(now)), flush=True)
