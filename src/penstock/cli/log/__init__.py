"""`penstock log`: shows saved messages as text, and how the time of each run was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import Json

if TYPE_CHECKING:
    from penstock.cli.log.saved_messages import Execution, SavedMessages


def log(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help="Output of `run --json`; - is standard input.", show_default=False),
    ] = "-",
    as_json: Json = False,
) -> None:
    """Show the saved messages of a run as text, and how its time was spent.

    \b
    Examples:
      penstock run shop.yaml --json > run.ndjson; penstock log run.ndjson
      penstock run shop.yaml --json | penstock log
      penstock log run.ndjson --json

    Prints the lines of each run with their times in UTC; then its summary table, rows per second overall and while
    moving, the time spent in each step, the size of slices, the requests, retries and waits of streams that are fetched
    from an API, the longest gaps without a message and their cause, and rows per CPU second.

    A file may contain several runs. A truncated last line and every line that is not a message are reported. With
    --json the summary is one document. The exit code is 0, whatever the exit codes of the runs were.
    """
    with report_errors(file, as_json=False):
        book = _read(file)
        if as_json:
            import json

            typer.echo(json.dumps(_document(file, book), indent=2))
        else:
            _show(file, book)


def _read(file: str) -> SavedMessages:
    import sys
    from contextlib import nullcontext
    from pathlib import Path

    from penstock.cli.log.saved_messages import read
    from penstock.errors import InputError

    safe = "Nothing was written."
    if file == "-" and sys.stdin.isatty():
        raise InputError(
            "no file was given, and standard input is a terminal",
            safe=safe,
            next_step="name a file, or pipe the output of `penstock run shop.yaml --json` into this command",
        )
    try:
        with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8", errors="replace") as lines:
            book = read(lines)
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}",
            safe=safe,
            next_step="give the path of a file that `penstock run shop.yaml --json` wrote",
        ) from None
    if not book.executions:
        raise InputError(
            f"there are no messages in {_name(file)}",
            safe=safe,
            next_step="save messages with: penstock run shop.yaml --json > run.ndjson",
        )
    return book


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _document(file: str, book: SavedMessages) -> dict[str, Any]:
    from penstock.cli.log.efficiency import document, nothing_new

    runs = [document(execution) for execution in book.executions]
    return {
        "file": file,
        "runs": runs,
        "nothing_new": nothing_new(runs),
        "problems": [{"line": problem.line, "what": problem.what} for problem in book.problems],
    }


def _show(file: str, book: SavedMessages) -> None:
    from penstock.cli.shared.error_report import print_error

    document = _document(file, book)
    for execution, run in zip(book.executions, document["runs"], strict=True):
        _show_run(execution, run)
    for line in _overall(document):
        typer.echo(line)
    for problem in book.problems:
        print_error(f"{_name(file)}, line {problem.line}: {problem.what}")


def _show_run(execution: Execution, run: dict[str, Any]) -> None:
    import shutil
    import sys

    from rich.console import Console

    from penstock.cli.display import pace
    from penstock.cli.display.summary import summary_table
    from penstock.cli.display.view import View, Viewport
    from penstock.cli.log.replay import mark_describer, replay
    from penstock.cli.shared.render import dated
    from penstock.core.progress import fold

    for at, line in replay(execution):
        typer.echo(dated(line.text, at))
    typer.echo()
    progress = fold(execution.messages)
    wide = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 120
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    now = progress.updated
    if now is not None and progress.slices:
        view = View(
            execution.pipeline, progress, now, pace.fold(execution.messages), describe_mark=mark_describer(execution)
        )
        Console(width=wide, highlight=False, emoji=False).print(
            summary_table(view, Viewport(wide - 1, ascii=ascii_only)), end=""
        )
    for text in _summary(run):
        typer.echo(text)
    typer.echo()


def _summary(run: dict[str, Any]) -> list[str]:
    """How the time of one run was spent."""
    from penstock.cli.log.efficiency import STEPS
    from penstock.cli.shared.render import count, size, span

    ended = run["status"] if run["exit_code"] is not None else "no last message: the run was killed or is still running"
    result = [f"{run['pipeline']}: {ended}"]
    if run["slices"]:
        rates = [
            f"{run[key]:,.0f} rows/s{when}"
            for key, when in (("rows_per_second", ""), ("rows_per_second_moving", " while moving"))
            if run[key]
        ]
        moved = f"{count(run['rows'], 'row')}, {size(run['bytes'])} in {count(run['slices'], 'slice')}"
        result.append(f"  moved    {moved}, {span(run['seconds'])}" + (f": {', '.join(rates)}" if rates else ""))
    total = sum(run["steps"].values())
    if total:
        parts = [
            f"{step} {span(run['steps'][step])} ({run['steps'][step] / total:.0%})"
            for step in STEPS
            if run["steps"][step]
        ]
        result.append(f"  time     {', '.join(parts)}")
    for index, stream in enumerate(stream for stream in run["streams"] if stream["slices"]):
        each = f"{stream['rows_per_slice']:,.0f} rows, {size(int(stream['bytes_per_slice'] or 0))} each"
        result.append(f"  {'slices' if not index else '':<8} {stream['stream']}: {stream['slices']:,} of {each}")
    for index, stream in enumerate(stream for stream in run["streams"] if stream["fetched"]):
        fetched = stream["fetched"]
        pages = f"{count(fetched['requests'], 'request')} for {count(fetched['pages'], 'page')}"
        each = f" ({fetched['requests_per_page']:.2f} each)" if fetched["requests_per_page"] else ""
        waited = f"{fetched['retries']:,} retried, waited {span(fetched['seconds_waited'])}"
        result.append(f"  {'fetched' if not index else '':<8} {stream['stream']}: {pages}{each}, {waited}")
    for index, gap in enumerate(run["gaps"]):
        at = gap["at"][11:19]
        result.append(f"  {'longest' if not index else '':<8} {span(gap['seconds'])} from {at}: {gap['what']}")
    if run["cpu_seconds"] is not None:
        rows = f": {run['rows_per_cpu_second']:,.0f} rows per CPU second" if run["rows_per_cpu_second"] else ""
        result.append(f"  CPU      {span(run['cpu_seconds'])}{rows}")
    return result


def _overall(document: dict[str, Any]) -> list[str]:
    """Totals over several runs."""
    from penstock.cli.shared.render import count, span

    runs, idle = document["runs"], document["nothing_new"]
    result = []
    if len(runs) > 1:
        rows, seconds = sum(run["rows"] for run in runs), sum(run["seconds"] for run in runs)
        result.append(f"{count(len(runs), 'run')}: {count(rows, 'row')} in {span(seconds)}")
    if idle["runs"]:
        cpu = f", {span(idle['cpu_seconds_each'])} of CPU time" if idle["cpu_seconds_each"] is not None else ""
        result.append(f"nothing new in {count(idle['runs'], 'run')}: {span(idle['seconds_each'])}{cpu} each")
    return result
