"""`penstock run`: syncs new and changed rows."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.handover import hand_over
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
            help="Start no slice, and fetch no more from an API, after this time: 90, 10m, 1h30m.",
        ),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines instead of the live display; the default without a terminal.")
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="Run in this process even if there is a warm worker.")] = False,
    as_json: Json = False,
) -> None:
    """Sync new and changed rows, exactly once. A run that was killed is resumed by the next run.

    \b
    Examples:
      penstock run shop.yaml
      penstock run shop.yaml shop --stream orders --stream customers
      penstock run shop.yaml --max-rows 100000 --time-limit 10m
      penstock run shop.yaml --set source.schema=sales
      penstock run shop.yaml --json > run.ndjson; penstock log run.ndjson

    Limits apply to each pipeline. A run that reaches a limit exits with code 0 and leaves rows for the next run: run
    the same command again.

    On a terminal, a live display shows each stream's step, speed, rows left and errors, followed by a summary table.
    With --plain, without a terminal, or with TERM=dumb, each event is a line, and a progress line is printed after 30
    seconds without one. In a file or a pipe, each line starts with its time in UTC. NO_COLOR turns colours off.

    With --json, every message is a line of JSON, and each pipeline ends with an `eof` message. With several pipelines
    the exit code is the worst one, in this order: signal, 2, 1, 3, 4, 0. One SIGINT or SIGTERM stops cleanly; a second
    SIGINT stops immediately. Neither loses rows.
    """
    with report_errors(file, as_json=as_json, dated=True):
        if not here:
            arguments = ["run", "--here", *_arguments(stream, max_rows, time_limit, set_, _env_file, plain, as_json)]
            if (code := hand_over(file, set_ or [], [*arguments, "--", file, *(pipelines or [])], as_json)) is not None:
                raise typer.Exit(code)
        from contextlib import ExitStack, closing

        from penstock import wiring
        from penstock.cli.shared.engine_run import run_engine
        from penstock.cli.shared.environment import environment_before
        from penstock.cli.shared.handover import WorkerStarter
        from penstock.cli.shared.hooks import Hooks, Outcome
        from penstock.cli.shared.output import live_wanted
        from penstock.cli.shared.signals import Signals
        from penstock.config.pipeline_choice import choose_pipeline, choose_pipelines
        from penstock.core.exits import worst
        from penstock.core.limits import Limits
        from penstock.errors import Interrupted, PenstockError

        limits = Limits(max_rows, time_limit)
        live = live_wanted(plain=plain, as_json=as_json)
        before = environment_before()
        worker = WorkerStarter()
        with Signals() as signals:
            loaded = wiring.load(file, set_ or ())
            names = choose_pipelines(loaded, pipelines)
            if stream and len(names) > 1:
                names = [choose_pipeline(loaded, None, f"penstock run FILE --stream {stream[0]}")]
            hooks = Hooks(loaded, before, lambda: signals.number is not None)
            try:
                store = wiring.open_store(loaded)
            except PenstockError as error:
                for name in [] if isinstance(error, Interrupted) else names:
                    hooks.call(name, Outcome.of(error))
                raise
            codes = []
            spark = wiring.shared_spark_for(loaded, names)
            with closing(store), ExitStack() as at_end:
                at_end.callback(spark.end)
                for name in names:
                    outcome = Outcome()
                    with outcome.report_errors(file, as_json=as_json):
                        run_engine(
                            loaded,
                            name,
                            store,
                            signals,
                            lambda engine: engine.run(limits, stream),
                            as_json=as_json,
                            live=live,
                            hear=worker.observe(outcome.hear),
                            shared_spark=spark,
                        )
                    codes.append(outcome.exit_code)
                    if signals.number is not None:
                        break
                    hooks.call(name, outcome)
            code = worst(codes)
            if not here and code == 0:
                worker.start_if_wanted(loaded, set_ or ())
        raise typer.Exit(code)


def _arguments(
    streams: list[str] | None,
    max_rows: int | None,
    time_limit: float | None,
    sets: list[str] | None,
    env_file: str | None,
    plain: bool,
    as_json: bool,
) -> list[str]:
    """The options as command-line arguments."""
    arguments = [word for stream in streams or [] for word in ("--stream", stream)]
    arguments += [] if max_rows is None else ["--max-rows", str(max_rows)]
    arguments += [] if time_limit is None else ["--time-limit", f"{time_limit:f}"]
    arguments += [word for each in sets or [] for word in ("--set", each)]
    arguments += [] if env_file is None else ["--env-file", env_file]
    return arguments + ["--plain"] * plain + ["--json"] * as_json
