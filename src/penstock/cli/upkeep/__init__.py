"""`penstock upkeep`: keep lake tables small, quick and within their bounds."""

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
    from penstock.lake.upkeep.work import Work
    from penstock.wiring import SparkRuntime


def upkeep(
    file: File,
    pipelines: Pipelines = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="T", help="Only this table; may be repeated."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="STEPS",
            help="Only these steps, parted by commas: retention, tombstones, compaction, expiry, orphans.",
        ),
    ] = None,
    abandon: Annotated[
        list[str] | None,
        typer.Option(
            "--abandon",
            metavar="PIPELINE/STREAM",
            help="First declare a reader abandoned: it holds nothing back any more. May be repeated.",
        ),
    ] = None,
    accept_foreign: Annotated[
        bool,
        typer.Option(
            "--accept-foreign",
            help="Only this: let readers go on where nobody can see any more which rows other programs brought. "
            "Asks first.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Pass readers that are behind, and take orphans younger than a day. Asks first."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Compact the lake tables that the pipelines write, expire their snapshots, remove what is too old or orphaned.

    \b
    Examples:
      penstock upkeep shop.yaml
      penstock upkeep shop.yaml shop --table orders --only compaction,expiry
      penstock upkeep shop.yaml --dry-run
      penstock upkeep shop.yaml --abandon export/orders
      penstock upkeep export.yaml --table orders --accept-foreign

    Runs beside writers and readers, as often as you like; needs no lease, and starts Spark only where files
    must be rewritten. Never removes a row that a registered reader has not read, unless forced: then it says
    first how many rows each reader loses. How long things are kept is said under `upkeep` of the lake sink.

    With `--accept-foreign` nothing else is done, and tables that the pipelines only read count too. Rows of
    unknown origin keep their numbers, it says which readers may miss some of them, and the table remembers it.

    The exit code is 1 if a step failed; the other steps and tables went on.
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
    from penstock.cli.upkeep.targets import narrowed, steps_of, targets_of
    from penstock.config.choosing import chosen

    steps = steps_of(only)
    with Signals():
        file = wiring.load(path, sets)
        targets = narrowed(file, targets_of(file, chosen(file, pipelines)), tables)
        report = Report(file, as_json=as_json)
        gc.freeze()
        gc.enable()
        if abandon:
            _abandon(targets, abandon, report, dry_run)
        if force and not dry_run:
            _ask(file, targets, steps, yes, as_json)
        _each(file, targets, lambda work: report.keep(work, steps), force=force, dry_run=dry_run)
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
    """Say what is accepted, ask, and let readers go on."""
    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.signals import Signals
    from penstock.cli.upkeep.report import Report
    from penstock.cli.upkeep.targets import narrowed, targets_of
    from penstock.config.choosing import chosen
    from penstock.lake.foreign import accept
    from penstock.lake.upkeep.work import Done

    with Signals():
        file = wiring.load(path, sets)
        targets = narrowed(file, targets_of(file, chosen(file, pipelines), read=True), tables)
        report = Report(file, as_json=as_json)

        def told(work: Work) -> list[str]:
            return accept(work.place, work.table, work.mover, work.probe, dry_run=dry_run)

        if not dry_run:
            lines: list[str] = []

            def foretell(work: Work) -> None:
                found = accept(work.place, work.table, work.mover, work.probe, dry_run=True)
                lines.extend(f"{work.name}: {line}" for line in found)

            _each(file, targets, foretell, force=False, dry_run=True)
            confirm(lines, yes=yes, to_stderr=as_json)

        def act(work: Work) -> None:
            for line in told(work):
                report.done(work.name, Done("accepted" if not dry_run else "would accept", line))

        _each(file, targets, act, force=False, dry_run=dry_run)
        return report.end()


def _each(
    file: PipelineFile, targets: Sequence[Target], act: Callable[[Work], None], *, force: bool, dry_run: bool
) -> None:
    """Every table's work; those of one lake share a Spark, which ends with the last of them."""
    from itertools import groupby

    from penstock import wiring
    from penstock.errors import Interrupted

    for settings, group in groupby(targets, key=lambda target: target.place.spark_settings()):
        runtime = wiring.runtime_for(file)
        try:
            for target in group:
                runtime.spark.needs(settings, target.place.spark_packages())
                act(_work(target, runtime, force=force, dry_run=dry_run))
        except Interrupted:
            runtime.cancel()
            raise
        finally:
            runtime.close()


def _work(target: Target, runtime: SparkRuntime, *, force: bool, dry_run: bool) -> Work:
    from penstock import wiring
    from penstock.lake.upkeep.work import Work

    return Work(
        place=target.place,
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
    """Declare readers abandoned, in every table that knows them."""
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError
    from penstock.lake.peek import peek
    from penstock.lake.upkeep.work import Done

    known: dict[str, list[Target]] = {}
    for target in targets:
        standing = peek(target.place, target.table)
        for reader in standing.readers() if standing else ():
            known.setdefault(f"{reader.pipeline}/{reader.stream}", []).append(target)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"no table has a reader '{name}'; {suggest(name, list(known), 'readers')}",
                safe=UNTOUCHED,
                next_step="give it as PIPELINE/STREAM, as the reader's own pipeline file names them",
            )
    for name in wanted:
        pipeline, _, stream = name.partition("/")
        for target in known[name]:
            if dry_run:
                text = f"would declare {name} abandoned"
            else:
                from penstock.lake.readers import abandon

                text = abandon(target.place, target.table, pipeline, stream)
            report.done(target.name, Done("readers", text))


def _ask(file: PipelineFile, targets: Sequence[Target], steps: Sequence[str], yes: bool, as_json: bool) -> None:
    """Say what a forced upkeep removes, and go on only if the user wants it."""
    from penstock.cli.shared.confirm import confirm
    from penstock.lake.upkeep.run import keep

    told: list[str] = []
    removing = [step for step in steps if step in ("retention", "tombstones", "orphans")]

    def tell(work: Work) -> None:
        told.extend(f"{work.name}: {done.step}: {done.text}" for done in keep(work, removing))

    _each(file, targets, tell, force=True, dry_run=True)
    confirm(told, yes=yes, to_stderr=as_json)
