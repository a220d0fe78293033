"""`penstock run`: move what is new."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.handover import handed_over
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Streams, duration, rows


def run(
    file: File,
    pipelines: Pipelines = None,
    stream: Streams = None,
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", metavar="N", parser=rows, help="Stop after this many rows.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            parser=duration,
            help="Begin no slice after this time: 90, 10m, 1h30m.",
        ),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines instead of the live display; so it is without a terminal.")
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="In this process, also if there is a warm worker.")] = False,
    as_json: Json = False,
) -> None:
    """Move what is new, exactly once; killed anywhere, the next run resumes from where it stood.

    \b
    Examples:
      penstock run shop.yaml
      penstock run shop.yaml shop --stream orders --stream customers
      penstock run shop.yaml --max-rows 100000 --time-limit 10m
      penstock run shop.yaml --set source.schema=sales
      penstock run shop.yaml --json > run.ndjson; penstock log run.ndjson

    Limits hold for each pipeline. At a limit the exit code is 0 and there is more to do: run the same command
    again.

    On a terminal a live display shows for each stream what it is doing, how fast, what is left and what is wrong, and
    a closing table stays. With --plain, without a terminal, or on a dumb one (TERM=dumb) there is a line for each event
    worth a line, and one every 30 seconds when there is none; where they go into a file or a pipe, each line begins
    with its time in UTC. NO_COLOR turns colours off.

    With --json every message is a line of JSON; each pipeline ends with an `eof`. With several pipelines
    the exit code is the worst: a signal's, then 2, 1, 3, 4, 0. One SIGINT or SIGTERM stops cleanly, a second
    SIGINT at once; neither loses anything.
    """
    with report_errors(file, as_json=as_json, dated=True):
        if not here:
            words = ["run", "--here", *_words(stream, max_rows, time_limit, set_, _env_file, plain, as_json)]
            if (code := handed_over(file, set_ or [], [*words, "--", file, *(pipelines or [])], as_json)) is not None:
                raise typer.Exit(code)
        raise typer.Exit(
            _run(
                file,
                set_ or [],
                pipelines,
                stream,
                max_rows=max_rows,
                time_limit=time_limit,
                plain=plain,
                as_json=as_json,
                may_leave_worker=not here,
            )
        )


def _words(
    streams: list[str] | None,
    max_rows: int | None,
    time_limit: float | None,
    sets: list[str] | None,
    env_file: str | None,
    plain: bool,
    as_json: bool,
) -> list[str]:
    """The options as one would write them."""
    words = [word for stream in streams or [] for word in ("--stream", stream)]
    words += [] if max_rows is None else ["--max-rows", str(max_rows)]
    words += [] if time_limit is None else ["--time-limit", f"{time_limit:f}"]
    words += [word for each in sets or [] for word in ("--set", each)]
    words += [] if env_file is None else ["--env-file", env_file]
    return words + ["--plain"] * plain + ["--json"] * as_json


def _run(
    path: str,
    sets: list[str],
    pipelines: list[str] | None,
    streams: list[str] | None,
    *,
    max_rows: int | None,
    time_limit: float | None,
    plain: bool,
    as_json: bool,
    may_leave_worker: bool,
) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.engine_run import run_engine
    from penstock.cli.shared.environment import environment_before
    from penstock.cli.shared.handover import WorkerStarter
    from penstock.cli.shared.hooks import Hooks, Outcome
    from penstock.cli.shared.output import live_wanted
    from penstock.cli.shared.signals import Signals
    from penstock.config.choosing import chosen, only
    from penstock.core.exits import worst
    from penstock.core.limits import Limits
    from penstock.errors import Interrupted, PenstockError

    limits = Limits(max_rows, time_limit)
    live = live_wanted(plain=plain, as_json=as_json)
    before = environment_before()
    left = WorkerStarter()
    with Signals() as signals:
        file = wiring.load(path, sets)
        names = chosen(file, pipelines)
        if streams and len(names) > 1:
            names = [only(file, None, f"penstock run FILE --stream {streams[0]}")]
        hooks = Hooks(file, before, lambda: signals.number is not None)
        try:
            store = wiring.open_store(file)
        except PenstockError as error:
            for name in [] if isinstance(error, Interrupted) else names:
                hooks.call(name, Outcome.of(error))
            raise
        codes = []
        with closing(store), wiring.shared_runtime_for(file, names) as kept:
            for name in names:
                outcome = Outcome()
                with outcome.kept(path, as_json=as_json):
                    run_engine(
                        file,
                        name,
                        store,
                        signals,
                        lambda engine: engine.run(limits, streams),
                        as_json=as_json,
                        live=live,
                        hear=left.beside(outcome.hear),
                        kept=kept,
                    )
                codes.append(outcome.exit_code)
                if signals.number is not None:
                    break
                hooks.call(name, outcome)
        code = worst(codes)
        if may_leave_worker and code == 0:
            left.leave(file, sets)
        return code
