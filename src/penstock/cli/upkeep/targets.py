"""Finds the lake tables and the steps of an upkeep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import wiring
from penstock.config import File
from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError
from penstock.lake.lake import Lake
from penstock.lake.metadata import list_tables, read_state
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.lake.upkeep.run import STEPS


@dataclass(frozen=True)
class Target:
    """One table, with the options of the pipeline that writes it."""

    lake: Lake
    table: str
    options: UpkeepOptions

    @property
    def name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"


def parse_steps(only: str | None) -> list[str]:
    """Parse `--only`: the named steps in the order they run; all steps if it is missing."""
    if only is None:
        return list(STEPS)
    named = [step.strip() for step in only.split(",") if step.strip()]
    for step in named:
        if step not in STEPS:
            raise InputError(
                f"there is no step '{step}'; {suggest(step, list(STEPS), 'steps')}",
                safe=UNTOUCHED,
                next_step=f"choose from: {', '.join(STEPS)}",
            )
    if not named:
        raise InputError("--only names no step", safe=UNTOUCHED, next_step=f"choose from: {', '.join(STEPS)}")
    return [step for step in STEPS if step in named]


def find_targets(file: File, names: Sequence[str], *, read: bool = False) -> list[Target]:
    """The tables that pipelines write, and those that they read and have adopted; grouped by lake, without duplicates.

    With `read`, all tables that they read.
    """
    targets = [target for name in names for target in _written(file, name)]
    targets += [target for name in names for target in _read(file, name, adopted=not read)]
    if not targets:
        raise InputError(
            f"no pipeline among {', '.join(names)} has written to a lake yet",
            safe=UNTOUCHED,
            next_step="first run a pipeline with a sink of type lake",
        )
    unique = {(_key(target.lake), target.table): target for target in reversed(targets)}
    return sorted(unique.values(), key=lambda target: (_key(target.lake), target.table))


def select_tables(file: File, targets: Sequence[Target], tables: Sequence[str] | None) -> list[Target]:
    """The named tables, with or without their namespace; all tables if none was named."""
    known = [word for target in targets for word in (target.table, target.name)]
    for table in tables or ():
        if table not in known:
            raise InputError(
                f"no pipeline of {file.path} writes to a table '{table}'; "
                f"{suggest(table, [target.table for target in targets], 'tables')}",
                safe=UNTOUCHED,
                next_step="name one of those tables, or omit --table",
            )
    return [target for target in targets if not tables or target.table in tables or target.name in tables]


def _written(file: File, name: str) -> list[Target]:
    from penstock.sinks.lake import LakeSink

    if file.pipelines[name].sink_type != "lake":
        return []
    sink = wiring.build_sink(file, name)
    assert isinstance(sink, LakeSink)
    wanted = {sink.table(stream) for stream in sink.streams}
    tables = []
    for table in list_tables(sink.lake):
        state = read_state(sink.lake, table) if table not in wanted else None
        if table in wanted or (state and any(about[0] == name for about in state.links())):
            tables.append(table)
    return [Target(sink.lake, table, sink.options.upkeep) for table in tables]


def _read(file: File, name: str, *, adopted: bool) -> list[Target]:
    from penstock.sources.lake import LakeSource

    if file.pipelines[name].source_type != "lake":
        return []
    source = wiring.bare_source(file, name)
    assert isinstance(source, LakeSource)
    there = list_tables(source.lake)
    wanted = {source.table(stream) for stream, options in source.streams.items() if options.adopt or not adopted}
    if not source.streams and not adopted:
        wanted = set(there)
    return [Target(source.lake, table, UpkeepOptions()) for table in there if table in wanted]


def _key(lake: Lake) -> tuple[str, ...]:
    properties = repr(sorted(lake.properties.items()))
    return (lake.type, lake.name, lake.uri, lake.warehouse, properties, lake.namespace)
