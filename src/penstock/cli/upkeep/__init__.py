"""`penstock upkeep`: compacts lake tables, expires snapshots and deletes old rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Yes

if TYPE_CHECKING:
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import Target
    from penstock.config import File as PipelineFile
    from penstock.lake.upkeep.job import UpkeepJob


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
    import gc

    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.signals import Signals
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import find_targets, parse_steps, select_tables
    from penstock.config.pipeline_choice import choose_pipelines

    with report_errors(file, as_json=as_json):
        steps = parse_steps(only)
        with Signals():
            loaded = wiring.load(file, set_ or [])
            known = find_targets(loaded, choose_pipelines(loaded, pipelines), read=accept_foreign)
            targets = select_tables(loaded, known, table)
            report = Report(loaded, as_json=as_json)
            gc.freeze()
            gc.enable()
            if abandon and not accept_foreign:
                _abandon(targets, abandon, report, dry_run)
            if accept_foreign:
                act = partial(_accept, report)
            else:
                act = partial(report.run, steps)
            if not dry_run and (force or accept_foreign):
                preview = _list_accepted if accept_foreign else partial(_list_deleted, steps)
                lines: list[str] = []
                _for_each(loaded, targets, lambda job: lines.extend(preview(job)), force=force, dry_run=True)
                confirm(lines, yes=yes, to_stderr=as_json)
            _for_each(loaded, targets, act, force=force, dry_run=dry_run)
            code = report.end()
        raise typer.Exit(code)


def _for_each(
    file: PipelineFile, targets: Sequence[Target], act: Callable[[UpkeepJob], None], *, force: bool, dry_run: bool
) -> None:
    """Call `act` with a job for every table; tables of one lake share a Spark session."""
    from itertools import groupby

    from penstock import wiring
    from penstock.errors import Interrupted
    from penstock.lake.upkeep.job import UpkeepJob

    for settings, group in groupby(targets, key=lambda target: target.lake.spark_settings()):
        runtime = wiring.runtime_for(file)
        try:
            for target in group:
                runtime.spark.require(settings, target.lake.spark_packages())
                job = UpkeepJob(
                    lake=target.lake,
                    table=target.table,
                    options=target.options,
                    spark=runtime.spark,
                    mover=lambda: runtime,  # noqa: B023 (called within this pass)
                    probe=wiring.make_probe(),
                    now=wiring.SystemClock().now(),
                    force=force,
                    dry_run=dry_run,
                )
                act(job)
        except Interrupted:
            runtime.cancel()
            raise
        finally:
            runtime.close()


def _accept(report: Report, job: UpkeepJob) -> None:
    """Let readers continue past rows of unknown origin, and print what is accepted."""
    from penstock.lake.foreign import accept
    from penstock.lake.upkeep.job import StepResult

    for line in accept(job.lake, job.table, job.mover, job.probe, dry_run=job.dry_run):
        report.add(job.name, StepResult("would accept" if job.dry_run else "accepted", line))


def _list_accepted(job: UpkeepJob) -> list[str]:
    """What would be accepted, for the confirmation."""
    from penstock.lake.foreign import accept

    return [f"{job.name}: {line}" for line in accept(job.lake, job.table, job.mover, job.probe, dry_run=True)]


def _list_deleted(steps: Sequence[str], job: UpkeepJob) -> list[str]:
    """What a forced upkeep would delete, for the confirmation."""
    from penstock.lake.upkeep.run import run_upkeep

    removing = [step for step in steps if step in ("retention", "tombstones", "orphans")]
    return [f"{job.name}: {result.step}: {result.text}" for result in run_upkeep(job, removing)]


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
            report.add(target.name, StepResult("readers", text))
