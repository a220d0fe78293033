"""Compares the streams of pipelines, prints what differs as text or JSON, and has it repaired where asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from penstock import wiring
from penstock.cli.shared.confirm import confirm
from penstock.cli.shared.engine_run import run_engine
from penstock.cli.shared.inspection import problem_document
from penstock.cli.shared.operation import existing_store
from penstock.cli.shared.render import count, print_json
from penstock.cli.shared.signals import Signals
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipelines, require_streams
from penstock.core.comparing import Difference
from penstock.core.drift import EVOLVE
from penstock.core.exits import DIFFERENT, worst
from penstock.core.limits import Limits
from penstock.core.ranges import Key
from penstock.engine.comparing import Comparison, Differences
from penstock.engine.repairing import Repair, Repaired
from penstock.errors import ConnectionFailed, Interrupted, NotComparable, PenstockError
from penstock.ports import Sink, Source, StreamInfo, not_comparable

#: keys of each kind that the text shows; JSON has all
SHOWN_KEYS = 10
#: seconds between two lines about a comparison that takes long
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for."""

    streams: Sequence[str] | None
    limits: Limits
    repair: bool
    delete_extra: bool
    yes: bool
    as_json: bool


@dataclass
class StreamReport:
    """One stream, compared or not."""

    stream: str
    found: Differences | None = None
    problem: PenstockError | None = None
    #: the user has named it
    is_named: bool = False
    #: why extra rows may be someone else's; None: they are this stream's
    foreign: str | None = None
    #: keys that still differ after a repair; None: there was none
    left: Mapping[Key, Difference] | None = None

    @property
    def is_skipped(self) -> bool:
        """Whether it cannot be compared by its nature, rather than by a failure."""
        return isinstance(self.problem, NotComparable)

    @property
    def exit_code(self) -> int:
        if self.problem is not None:
            return 0 if self.is_skipped and not self.is_named else self.problem.exit_code
        differs = self.left if self.left is not None else self.found and self.found.keys
        return DIFFERENT if differs else 0

    def repair(self, *, delete_extra: bool) -> Repair:
        """What is to be delivered of it."""
        if self.found is None:
            return Repair()
        extra = self.found.of_kind(Difference.EXTRA)
        keys = [key for key, kind in self.found.keys.items() if kind is not Difference.EXTRA]
        return Repair(keys, extra if self.foreign is None or delete_extra else ())


@dataclass
class PipelineReport:
    """One pipeline."""

    pipeline: str
    streams: list[StreamReport] = field(default_factory=list)
    problem: PenstockError | None = None
    #: the exit code of a repair; 0: there was none
    repair_code: int = 0

    @property
    def exit_code(self) -> int:
        if self.problem is not None:
            return self.problem.exit_code
        if self.streams and all(stream.is_skipped for stream in self.streams):
            return 2
        return worst([self.repair_code, *(stream.exit_code for stream in self.streams)])


def verify_file(path: str, sets: Sequence[str] | None, pipelines: Sequence[str] | None, request: Request) -> int:
    """Compare pipelines, print what differs, repair it where asked, and return the exit code."""
    file = wiring.load(path, sets or ())
    reports = []
    for name in choose_pipelines(file, pipelines):
        with Signals():
            report = _compare_pipeline(file, name, request)
        if not request.as_json:
            print("\n".join(_lines(report, file)), flush=True)
        if request.repair:
            _repair(file, report, request)
        reports.append(report)
    code = worst(report.exit_code for report in reports)
    if request.as_json:
        document = {"file": file.path, "exit_code": code, "pipelines": [_document(each, file) for each in reports]}
        print_json(document, indent=2)
    return code


def _compare_pipeline(file: File, name: str, request: Request) -> PipelineReport:
    report = PipelineReport(name)
    runtime = wiring.runtime_for(file, on_start=lambda: print(f"{name}: starting Spark", file=sys.stderr, flush=True))
    try:
        context = wiring.context_for(
            file,
            name,
            runtime=runtime,
            say=lambda stream, text: print(f"{name}/{stream}: {text}", file=sys.stderr, flush=True),
        )
        source, sink = wiring.build_source(file, name, context), wiring.build_sink(file, name, context)
        with closing(source), closing(sink):
            _compare_streams(file, report, source, sink, request)
    except Interrupted:
        runtime.cancel()
        raise
    except PenstockError as error:
        report.problem = error.at(pipeline=name)
    finally:
        runtime.close()
    return report


def _compare_streams(file: File, report: PipelineReport, source: Source, sink: Sink, request: Request) -> None:
    sink.connect()
    source.connect()
    infos = source.catalog()
    require_streams(request.streams, [info.name for info in infos], report.pipeline)
    sink.begin_run([info for info in infos if info.skipped is None])
    for info in infos:
        if request.streams and info.name not in request.streams:
            continue
        if info.skipped is not None:
            problem = not_comparable(info.name, f"it is skipped: {info.skipped}", "penstock check FILE")
            problem.at(pipeline=report.pipeline)
            report.streams.append(StreamReport(info.name, problem=problem, is_named=bool(request.streams)))
        else:
            report.streams.append(_compare_stream(file, report.pipeline, info, source, sink, request))


def _compare_stream(
    file: File, pipeline: str, info: StreamInfo, source: Source, sink: Sink, request: Request
) -> StreamReport:
    stream = StreamReport(info.name, is_named=bool(request.streams))
    keys = file.pipelines[pipeline].streams.get(info.name)
    try:
        comparison = Comparison(
            info,
            source,
            sink,
            drift=keys.drift if keys else EVOLVE,
            dropped_columns=keys.dropped if keys else (),
            elapsed=time.monotonic,
            report=_Progress(f"{pipeline}/{info.name}"),
        )
        with closing(comparison):
            stream.found = comparison.run(request.limits)
            if stream.found.of_kind(Difference.EXTRA):
                stream.foreign = comparison.explain_foreign_rows()
    except (ConnectionFailed, Interrupted):
        raise
    except PenstockError as error:
        stream.problem = error.at(pipeline=pipeline, stream=info.name)
    return stream


class _Progress:
    """Prints how far a comparison is, every few seconds, on standard error."""

    def __init__(self, name: str) -> None:
        self._name, self._said = name, time.monotonic()

    def __call__(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            print(f"{self._name}: {count(rows, 'row')} compared so far", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- the repair


def _repair(file: File, report: PipelineReport, request: Request) -> None:
    wanted = {each.stream: each.repair(delete_extra=request.delete_extra) for each in report.streams}
    wanted = {stream: repair for stream, repair in wanted.items() if repair.all}
    if not wanted:
        return
    lines = []
    for stream, repair in wanted.items():
        upserts = f"{count(len(repair.keys), 'row')} will be read from the source and delivered"
        deletes = f"{count(len(repair.deletes), 'row')} will be deleted in the sink, as its `deletes` says"
        doing = "; ".join(text for text, some in ((upserts, repair.keys), (deletes, repair.deletes)) if some)
        lines.append(f"{report.pipeline}/{stream}: {doing}")
    confirm(lines, yes=request.yes, to_stderr=request.as_json)
    result = Repaired()
    with existing_store(file, "repair") as store, Signals() as signals:
        report.repair_code = run_engine(
            file,
            report.pipeline,
            store,
            signals,
            lambda engine: engine.repair(wanted, result),
            as_json=False,
            summary=False,
            to_stderr=request.as_json,
        )
    for each in report.streams:
        if each.found is not None and report.repair_code == 0:
            repaired = set(wanted[each.stream].all) if each.stream in wanted else set()
            kept = {key: kind for key, kind in each.found.keys.items() if key not in repaired}
            each.left = kept | result.left.get(each.stream, {})


# ---------------------------------------------------------------- text and JSON


def _lines(report: PipelineReport, file: File) -> list[str]:
    if report.problem is not None:
        return _problem(report.pipeline, report.problem, file)
    return [line for stream in report.streams for line in _stream_lines(report.pipeline, stream, file)]


def _problem(name: str, error: PenstockError, file: File) -> list[str]:
    document = problem_document(error, file)
    assert document is not None
    return [f"{name}: {document['what']}", f"  Next: {document['next_step']}"]


def _stream_lines(pipeline: str, stream: StreamReport, file: File) -> list[str]:
    name, found = f"{pipeline}/{stream.stream}", stream.found
    if stream.problem is not None or found is None:
        assert stream.problem is not None
        return _problem(name, stream.problem, file)
    counts = {kind: found.of_kind(kind) for kind in Difference}
    result = ", ".join(f"{len(keys):,} {kind}" for kind, keys in counts.items() if keys) or "equal"
    lines = [f"{name}: {count(found.rows, 'row')} compared: {result}"]
    for kind, keys in counts.items():
        lines += [f"  {kind:<8} {_key(found, key)}" for key in keys[:SHOWN_KEYS]]
        if len(keys) > SHOWN_KEYS:
            lines.append(f"  {kind:<8} … and {len(keys) - SHOWN_KEYS:,} more; --json lists all")
    lines += _skipped_lines(found.columns.skipped)
    if found.limit:
        lines.append(f"  not compared: keys after {_last(found)} (stopped at {found.limit})")
    if found.in_flight:
        lines.append(f"  {count(found.in_flight, 'key')} differ for now: changed above the mark, or outside the filter")
    if found.quarantined:
        lines.append(f"  {count(found.quarantined, 'row')} in quarantine: penstock quarantine list {file.path}")
    if found.unsettled:
        lines.append(f"  {count(found.unsettled, 'key')} not compared: a run was changing the sink; verify again")
    if stream.foreign:
        lines.append(
            f"  extra rows may be someone else's: {stream.foreign}; --repair leaves them unless --delete-extra"
        )
    return lines


def _skipped_lines(skipped: Mapping[str, str]) -> list[str]:
    """The columns that are not compared: one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for column, why in skipped.items():
        by_reason.setdefault(why, []).append(column)
    return [
        f"  not compared: {'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}: {why}"
        for why, columns in by_reason.items()
    ]


def _key(found: Differences, key: Key) -> str:
    return ", ".join(f"{column.name} {text}" for column, text in zip(found.columns.key, key, strict=True))


def _last(found: Differences) -> str:
    return _key(found, found.ended_after) if found.ended_after else "the beginning"


def _document(report: PipelineReport, file: File) -> dict[str, Any]:
    return {
        "pipeline": report.pipeline,
        "exit_code": report.exit_code,
        "problem": problem_document(report.problem, file),
        "streams": [_stream_document(stream, file) for stream in report.streams],
    }


def _stream_document(stream: StreamReport, file: File) -> dict[str, Any]:
    found = stream.found
    document: dict[str, Any] = {"stream": stream.stream, "problem": problem_document(stream.problem, file)}
    if found is None:
        return document
    names = [column.name for column in found.columns.key]
    return document | {
        "rows": found.rows,
        "complete": found.limit is None and not found.unsettled,
        "limit": found.limit,
        "not_compared_after": list(found.ended_after) if found.limit and found.ended_after else None,
        "columns_not_compared": dict(found.columns.skipped),
        "in_flight": found.in_flight,
        "quarantined": found.quarantined,
        "unsettled": found.unsettled,
        "extra_may_be_foreign": stream.foreign,
        "differences": {
            kind.value: [dict(zip(names, key, strict=True)) for key in found.of_kind(kind)] for kind in Difference
        },
        "left_after_repair": None if stream.left is None else len(stream.left),
    }
