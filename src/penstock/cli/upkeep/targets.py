"""Which lake tables an upkeep is about, and which steps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import wiring
from penstock.config import File
from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError
from penstock.lake.peek import peek, tables_in
from penstock.lake.place import Place
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.lake.upkeep.run import STEPS


@dataclass(frozen=True)
class Target:
    """One table, with the options of the pipeline that writes it."""

    place: Place
    table: str
    options: UpkeepOptions

    @property
    def name(self) -> str:
        return f"{self.place.namespace}.{self.table}"


def steps_of(only: str | None) -> list[str]:
    """The steps that were named, in their own order; all if none was."""
    if only is None:
        return list(STEPS)
    named = [word.strip() for word in only.split(",") if word.strip()]
    for word in named:
        if word not in STEPS:
            raise InputError(
                f"there is no step '{word}'; {suggest(word, list(STEPS), 'steps')}",
                safe=UNTOUCHED,
                next_step=f"give some of: {', '.join(STEPS)}",
            )
    if not named:
        raise InputError("--only names no step", safe=UNTOUCHED, next_step=f"give some of: {', '.join(STEPS)}")
    return [step for step in STEPS if step in named]


def targets_of(file: File, names: Sequence[str], *, read: bool = False) -> list[Target]:
    """The tables that pipelines land in; then those that they read and have adopted. Each once, lake by lake.

    `read`: all that they read.
    """
    found = [target for name in names for target in _written(file, name)]
    found += [target for name in names for target in _read(file, name, adopted=not read)]
    if not found:
        raise InputError(
            f"no pipeline among {', '.join(names)} has landed in a lake",
            safe=UNTOUCHED,
            next_step="run a pipeline whose sink is of type lake first",
        )
    once = {(_key(target.place), target.table): target for target in reversed(found)}
    return sorted(once.values(), key=lambda target: (_key(target.place), target.table))


def narrowed(file: File, targets: Sequence[Target], tables: Sequence[str] | None) -> list[Target]:
    """The tables that were named, with or without their namespace; all if none was."""
    known = [word for target in targets for word in (target.table, target.name)]
    for table in tables or ():
        if table not in known:
            raise InputError(
                f"no pipeline of {file.path} has landed in a table '{table}'; "
                f"{suggest(table, [target.table for target in targets], 'tables')}",
                safe=UNTOUCHED,
                next_step="name one of those tables, or leave out --table",
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
    for table in tables_in(sink.place):
        standing = peek(sink.place, table) if table not in wanted else None
        if table in wanted or (standing and any(about[0] == name for about in standing.links())):
            tables.append(table)
    return [Target(sink.place, table, sink.options.upkeep) for table in tables]


def _read(file: File, name: str, *, adopted: bool) -> list[Target]:
    from penstock.sources.lake import LakeSource

    if file.pipelines[name].source_type != "lake":
        return []
    source = wiring.bare_source(file, name)
    assert isinstance(source, LakeSource)
    there = tables_in(source.place)
    wanted = {source.table(stream) for stream, options in source.streams.items() if options.adopt or not adopted}
    if not source.streams and not adopted:
        wanted = set(there)
    return [Target(source.place, table, UpkeepOptions()) for table in there if table in wanted]


def _key(place: Place) -> tuple[str, ...]:
    properties = repr(sorted(place.properties.items()))
    return (place.type, place.name, place.uri, place.warehouse, properties, place.namespace)
