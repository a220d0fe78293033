"""`penstock import rustream`: its configuration becomes a pipeline file, and its watermarks become marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, Json, Streams, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile


def rustream(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="rustream's configuration.", show_default=False)],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="The pipeline file. One that exists is not changed."),
    ] = "penstock.yaml",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="PLACE",
            help="rustream's state: its folder, or the file in it. Default: `state_dir` of the configuration.",
            show_default=False,
        ),
    ] = None,
    url_env: Annotated[
        str,
        typer.Option("--url-env", metavar="NAME", help="The environment variable from which the file takes the URL."),
    ] = "DATABASE_URL",
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            "-p",
            metavar="P",
            help="The pipeline that continues. Default: the database's name, as the file is written.",
        ),
    ] = None,
    stream: Streams = None,
    file_only: Annotated[
        bool, typer.Option("--file-only", help="Write the pipeline file, and leave the watermarks for later.")
    ] = False,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take over from rustream: write a pipeline file, and continue each table behind its watermark.

    \b
    Examples:
      penstock import rustream config.yaml --file-only
      penstock import rustream config.yaml --state .rustream_state
      penstock import rustream config.yaml --stream orders --yes

    Stop rustream first. The file has a comment wherever penstock does something else than rustream. Then the marks are
    shown, and set after a confirmation: rows up to a watermark are not delivered again. A watermark without a
    tiebreaker is refused: rows with the same value may or may not have been delivered. rustream's files stay as they
    are.
    """
    with report_errors(output, as_json=as_json):
        from penstock.cli.imports.rustream_config import read_config
        from penstock.cli.imports.rustream_state import find_state, keys_for, read_watermarks
        from penstock.cli.imports.rustream_text import pipeline_of, write_file
        from penstock.cli.shared.operation import operate

        read = read_config(config)
        for line in write_file(read, output, url_env):
            typer.echo(line, err=as_json)
        place = None if file_only else find_state(state, read.state_dir)
        if place is None:
            if not file_only:
                typer.echo("There is no state of rustream: the first run reads every table from the beginning.")
            return
        watermarks = read_watermarks(place)

        def prepare(file: PipelineFile, name: str) -> Prepared:
            keys = keys_for(file, name, read, watermarks, stream)
            lines = _preview(file, name, keys)
            return lines, lambda engine: engine.continue_behind(keys)

        command = f"penstock import rustream {config} --output {output}"
        name = pipeline or pipeline_of(read)
        raise typer.Exit(operate(output, (), name, command, prepare, yes=yes, as_json=as_json))


def _preview(file: PipelineFile, name: str, keys: dict[str, tuple[str, ...]]) -> list[str]:
    """Where each stream will continue; raises what the engine would raise."""
    from contextlib import closing

    from penstock import wiring
    from penstock.errors import StreamRefused, refuse_all
    from penstock.ports import find_mark_behind

    lines: list[str] = []
    problems: list[StreamRefused] = []
    with closing(wiring.open_store(file)) as store, closing(wiring.build_source(file, name)) as source:
        source.connect()
        for stream, key in keys.items():
            state = store.state(name, stream)
            if state.intent is not None:
                lines.append(f"{name}/{stream}: slice {state.intent.number} is open and is finished")
                continue
            if state.last is not None:
                lines.append(
                    f"{name}/{stream}: has begun already and stays at its mark: {source.describe(state.last.mark)}"
                )
                continue
            try:
                mark = find_mark_behind(source, stream, source.content(stream), key)
            except StreamRefused as error:
                error.at(pipeline=name, stream=stream)
                problems.append(error)
            else:
                lines.append(f"{name}/{stream}: continues {source.describe(mark)}")
    refuse_all(problems)
    return [*lines, "Rows up to there are not delivered. Make sure that rustream no longer runs."]
