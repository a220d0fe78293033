"""`penstock upkeep`: compacts lake tables, expires snapshots and deletes old rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Yes

if TYPE_CHECKING:
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import Target
    from penstock.config import File as PipelineFile
    from penstock.lake.upkeep.job import UpkeepJob
    from penstock.links.spark.runtime import SparkRuntime


def upkeep(
    file: File,
    pipelines: Pipelines = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="T", help="Only this table. May be repeated."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="STEPS",
            help="Comma-separated list of steps: retention, tombstones, compaction, expiry, orphans.",
        ),
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(
            "--abandon",
            metavar="PIPELINE/STREAM",
            help="First declare a reader abandoned, so that it no longer holds rows back. May be repeated.",
        ),
    ] = None,
    accept_foreign: Annotated[
        bool,
        typer.Option(
            "--accept-foreign",
            help="Only do this: let readers continue past rows of unknown origin, written by other programs. "
            "Asks for confirmation.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete rows that readers have not read, and orphan files younger than a day. Asks for confirmation.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Compact the lake tables that the pipelines write, expire snapshots, and delete old rows and orphan files.

    \b
    Examples:
      penstock upkeep shop.yaml
      penstock upkeep shop.yaml shop --table orders --only compaction,expiry
      penstock upkeep shop.yaml --dry-run
      penstock upkeep shop.yaml --abandon export/orders
      penstock upkeep export.yaml --table orders --accept-foreign

    Safe to run at any time, next to writers and readers. Needs no lease, and starts Spark only to rewrite files. Never
    deletes a row that a registered reader has not read, except with --force, which prints how many rows each reader
    loses. Retention periods are set under `upkeep` of the lake sink.

    With `--accept-foreign`, no other step runs, and tables that the pipelines only read are included. Rows of unknown
    origin keep their numbers. The command prints which readers may miss some of them, and records it in the table.

    The exit code is 1 if a step failed; the other steps and tables are still processed.
    """
    with report_errors(file, as_json=as_json):
        if accept_foreign:
            raise typer.Exit(_accept(file, set_ or [], pipelines, table, dry_run, yes, as_json))
        raise typer.Exit(_upkeep(file, set_ or [], pipelines, table, only, abandon, force, dry_run, yes, as_json))


def _upkeep(
    path: str,
    sets: list[str],
    pipelines: list[str] | None,
    tables: list[str] | None,
    only: str | None,
    abandon: list[str] | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    import gc

    from penstock import wiring
    from penstock.cli.shared.signals import Signals
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import find_targets, parse_steps, select_tables
    from penstock.config.pipeline_choice import choose_pipelines

    steps = parse_steps(only)
    with Signals():
        file = wiring.load(path, sets)
        targets = select_tables(file, find_targets(file, choose_pipelines(file, pipelines)), tables)
        report = Report(file, as_json=as_json)
        gc.freeze()
        gc.enable()
        if abandon:
            _abandon(targets, abandon, report, dry_run)
        if force and not dry_run:
            _confirm_force(file, targets, steps, yes, as_json)
        _each(file, targets, lambda job: report.keep(job, steps), force=force, dry_run=dry_run)
        return report.end()


def _accept(
    path: str,
    sets: list[str],
    pipelines: list[str] | None,
    tables: list[str] | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Print what is accepted, ask for confirmation, and let readers continue."""
    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.signals import Signals
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import find_targets, select_tables
    from penstock.config.pipeline_choice import choose_pipelines
    from penstock.lake.foreign import accept
    from penstock.lake.upkeep.job import StepResult

    with Signals():
        file = wiring.load(path, sets)
        targets = select_tables(file, find_targets(file, choose_pipelines(file, pipelines), read=True), tables)
        report = Report(file, as_json=as_json)

        if not dry_run:
            lines: list[str] = []

            def preview(job: UpkeepJob) -> None:
                accepted = accept(job.lake, job.table, job.mover, job.probe, dry_run=True)
                lines.extend(f"{job.name}: {line}" for line in accepted)

            _each(file, targets, preview, force=False, dry_run=True)
            confirm(lines, yes=yes, to_stderr=as_json)

        def act(job: UpkeepJob) -> None:
            for line in accept(job.lake, job.table, job.mover, job.probe, dry_run=dry_run):
                report.done(job.name, StepResult("accepted" if not dry_run else "would accept", line))

        _each(file, targets, act, force=False, dry_run=dry_run)
        return report.end()


def _each(
    file: PipelineFile, targets: Sequence[Target], act: Callable[[UpkeepJob], None], *, force: bool, dry_run: bool
) -> None:
    """Do the work of every table; tables of one lake share a Spark session."""
    from itertools import groupby

    from penstock import wiring
    from penstock.errors import Interrupted

    for settings, group in groupby(targets, key=lambda target: target.lake.spark_settings()):
        runtime = wiring.runtime_for(file)
        try:
            for target in group:
                runtime.spark.require(settings, target.lake.spark_packages())
                act(_make_job(target, runtime, force=force, dry_run=dry_run))
        except Interrupted:
            runtime.cancel()
            raise
        finally:
            runtime.close()


def _make_job(target: Target, runtime: SparkRuntime, *, force: bool, dry_run: bool) -> UpkeepJob:
    from penstock import wiring
    from penstock.lake.upkeep.job import UpkeepJob

    return UpkeepJob(
        lake=target.lake,
        table=target.table,
        options=target.options,
        spark=runtime.spark,
        mover=lambda: runtime,
        probe=wiring.make_probe(),
        now=wiring.SystemClock().now(),
        force=force,
        dry_run=dry_run,
    )


def _abandon(targets: Sequence[Target], wanted: Sequence[str], report: Report, dry_run: bool) -> None:
    """Declare readers abandoned in every table where they are registered."""
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError
    from penstock.lake.metadata import read_state
    from penstock.lake.upkeep.job import StepResult

    known: dict[str, list[Target]] = {}
    for target in targets:
        state = read_state(target.lake, target.table)
        for reader in state.readers() if state else ():
            known.setdefault(f"{reader.pipeline}/{reader.stream}", []).append(target)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"no table has a reader '{name}'; {suggest(name, list(known), 'readers')}",
                safe=UNTOUCHED,
                next_step="give PIPELINE/STREAM as named in the reader's own pipeline file",
            )
    for name in wanted:
        pipeline, _, stream = name.partition("/")
        for target in known[name]:
            if dry_run:
                text = f"would declare {name} abandoned"
            else:
                from penstock.lake.readers import abandon

                text = abandon(target.lake, target.table, pipeline, stream)
            report.done(target.name, StepResult("readers", text))


def _confirm_force(
    file: PipelineFile, targets: Sequence[Target], steps: Sequence[str], yes: bool, as_json: bool
) -> None:
    """Print what a forced upkeep deletes, and ask for confirmation."""
    from penstock.cli.shared.confirm import confirm
    from penstock.lake.upkeep.run import run_upkeep

    lines: list[str] = []
    removing = [step for step in steps if step in ("retention", "tombstones", "orphans")]

    def preview(job: UpkeepJob) -> None:
        lines.extend(f"{job.name}: {done.step}: {done.text}" for done in run_upkeep(job, removing))

    _each(file, targets, preview, force=True, dry_run=True)
    confirm(lines, yes=yes, to_stderr=as_json)
