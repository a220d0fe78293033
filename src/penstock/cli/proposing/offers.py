"""What `init` does: asks the source what it offers, lets the sink look at each proposal, and writes the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock import sinks, sources
from penstock.cli.proposing.file import Stream, Variable, file_text
from penstock.cli.shared.render import count
from penstock.config.mistakes import suggest
from penstock.errors import UNTOUCHED, InputError, StreamRefused
from penstock.ports import Context, DiscoveredStream, NoProbe, Sink, Source, discover

#: what rows are stored in; a view's rows come from elsewhere
_TABLES = ("table", "partitioned table")
#: the environment variable that holds the URL of a postgres sink
SINK_URL = "SINK_URL"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says."""

    url: str | None
    url_env: str
    output: str
    pipeline: str | None
    schema: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    views: bool
    sink: str
    directory: str | None
    warehouse: str | None
    sink_url_env: str | None
    sink_schema: str | None
    stdout: bool
    force: bool


def propose(wanted: Wanted) -> None:
    """Write the file, or print it, and say what comes next."""
    for variable in (wanted.url_env, wanted.sink_url_env or SINK_URL):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise _refused(f"{variable!r} is no name of an environment variable", "use letters, digits and _")
    if not wanted.stdout and not wanted.force and os.path.lexists(wanted.output):
        raise _refused(
            f"{wanted.output} is there already",
            "add --add to add the tables that it lacks, --force to replace it, or name another file with --output",
        )
    sink_options = _sink_options(wanted)
    url = wanted.url or os.environ.get(wanted.url_env)
    if not url:
        raise _refused(
            f"no URL is given, and the environment variable {wanted.url_env} is not set",
            f"penstock init postgresql://user:password@host/database; or set {wanted.url_env}",
        )
    if sink_options["type"] == "postgres":
        sink_options |= _database_of_the_sink(wanted, url)
    name = wanted.pipeline or _database(url)
    context = Context(pipeline=name, folder=os.path.dirname(os.path.abspath(wanted.output)), probe=NoProbe())
    source_options = {"type": "postgres", "url": url, "schema": wanted.schema}
    source = _built(sources, source_options, {}, context)
    try:
        offers = chosen_of(discover(source), wanted.include, wanted.exclude)
    finally:
        source.close()
    streams = _agreed(streams_for(offers, wanted.sink, views=wanted.views), source_options, sink_options, context)
    if not any(stream.left_out is None for stream in streams):
        raise _nothing(wanted, streams)
    shown = {"type": "postgres", "url": Variable(wanted.url_env), "schema": wanted.schema}
    if sink_options["type"] == "postgres":
        sink_options["url"] = Variable(wanted.sink_url_env or SINK_URL)
    text = file_text(_opening(wanted), name, shown, sink_options, streams)
    if wanted.stdout:
        print(text, end="")
        return
    _write(Path(wanted.output), text, force=wanted.force)
    print("\n".join(_closing(wanted, streams)))


# ---------------------------------------------------------------- both sides


def _sink_options(wanted: Wanted) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = {
        "files": {"directory": wanted.directory or "out"},
        "lake": {"warehouse": wanted.warehouse or "lake"},
        "postgres": {"url": None, "schema": wanted.sink_schema or wanted.schema},
    }
    if wanted.sink not in known:
        raise _refused(f"there is no sink '{wanted.sink}' here; {suggest(wanted.sink, known, 'sinks')}", "--sink files")
    of = {
        "--directory": ("files", wanted.directory),
        "--warehouse": ("lake", wanted.warehouse),
        "--sink-url-env": ("postgres", wanted.sink_url_env),
        "--sink-schema": ("postgres", wanted.sink_schema),
    }
    for option, (sink, given) in of.items():
        if given and sink != wanted.sink:
            step = f"leave {option} out, or choose the other sink"
            raise _refused(f"{option} does not fit --sink {wanted.sink}", step)
    return {"type": wanted.sink, **known[wanted.sink]}


def _database_of_the_sink(wanted: Wanted, source: str) -> dict[str, Any]:
    """Where a postgres sink writes, once it is known where is read."""
    variable = wanted.sink_url_env or SINK_URL
    url = os.environ.get(variable)
    if not url:
        raise _refused(
            f"--sink postgres takes the URL of the sink from the environment variable {variable}, which is not set",
            f"set {variable}, or name another with --sink-url-env",
        )
    if url == source and (wanted.sink_schema or wanted.schema) == wanted.schema:
        raise _refused(
            f"the tables of the schema {wanted.schema} would be written into themselves",
            "name another schema with --sink-schema, or another database",
        )
    return {"url": url}


def _database(url: str) -> str:
    """The name that a pipeline gets from its database."""
    path = re.sub(r"[?#].*", "", url).partition("://")[2].partition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "_", path).strip("_") or "main"


def _built(
    registry: Any, options: Mapping[str, Any], streams: Mapping[str, Mapping[str, Any]], context: Context
) -> Any:
    """A source or sink, as a pipeline file with these options would have it."""
    module = registry.load(options["type"])
    try:
        chosen = module.Options.model_validate({k: v for k, v in options.items() if k != "type"})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        raise _refused(f"{'.'.join(map(str, first['loc']))}: {text}", "correct it, and call init again") from None
    known = {field.alias or name for name, field in module.StreamOptions.model_fields.items()}
    said = {
        name: module.StreamOptions.model_validate({k: v for k, v in each.items() if k in known})
        for name, each in streams.items()
    }
    return module.build(chosen, said, context)


def _agreed(
    streams: Sequence[Stream],
    source_options: Mapping[str, Any],
    sink_options: Mapping[str, Any],
    context: Context,
) -> list[Stream]:
    """The streams as the sink takes them; one that it refuses is left out, with its reason."""
    options = {stream.offered.name: stream.options for stream in streams if stream.left_out is None}
    if not options:
        return list(streams)
    source: Source = _built(sources, source_options, options, context)
    sink: Sink = _built(sinks, sink_options, options, context)
    return agreed(streams, source, sink)


def agreed(streams: Sequence[Stream], source: Source, sink: Sink) -> list[Stream]:
    """The streams, each asked of both sides, which know it by its options; closes them."""
    try:
        sink.connect()
        infos = {info.name: info for info in source.catalog()}
        sink.begin_run(list(infos.values()))
        found = []
        for stream in streams:
            refused = stream.left_out
            if refused is None:
                try:
                    sink.check(infos[stream.offered.name], source.content(stream.offered.name))
                except StreamRefused as error:
                    refused = f"{error.what}: {error.next_step}"
            found.append(replace(stream, left_out=refused))
        return found
    finally:
        sink.close()
        source.close()


# ---------------------------------------------------------------- the streams


def chosen_of(
    offers: Sequence[DiscoveredStream], include: Sequence[str], exclude: Sequence[str]
) -> list[DiscoveredStream]:
    """What the patterns leave."""

    def fits(offered: DiscoveredStream, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(offered.name, pattern) for pattern in patterns)

    return [o for o in offers if (not include or fits(o, include)) and not fits(o, exclude)]


def streams_for(
    offers: Sequence[DiscoveredStream], sink: str, *, views: bool, tables: Iterable[str] = ()
) -> list[Stream]:
    """Streams for the file, with what the sink needs. `tables`: names of tables in the lake that others have."""
    found = []
    taken = {table.lower() for table in tables}
    for offered in offers:
        left_out = offered.refused
        if left_out is None and offered.what not in _TABLES and not views:
            left_out = "its rows come from elsewhere; to read it whole in every run, take the # away or use --views"
        options = dict(offered.options)
        if sink == "lake":
            into = _table_for(offered.name, taken)
            options |= {"into": into} if into else {}
            # By a number that only new rows take no row comes twice, and adding is cheaper than merging.
            if "cursor" in options and offered.primary_key and not options.get("unique"):
                options["mode"] = "merge"
        if sink == "postgres" and "cursor" in options and offered.primary_key:
            options["newer_than"] = options["cursor"]
        found.append(Stream(offered, options, left_out))
    return found


def _table_for(stream: str, taken: set[str]) -> str | None:
    """A name of its own for a stream whose name would give a lake table that another stream has; None: not needed."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", stream)
    name, number = stem, 1
    while name.lower() in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name.lower())
    return name if name != stem else None


# ---------------------------------------------------------------- the file, and what is said


def _opening(wanted: Wanted) -> list[str]:
    return [
        f"Proposed by `penstock init` for the schema {wanted.schema} of a Postgres database. The reasons stand above "
        "each stream; change what you know better.",
        "A stream with a cursor delivers rows that are new or changed, and does not see deletes. One without is read "
        "whole in every run.",
        f"The URL is taken from the environment variable {wanted.url_env}"
        + (f", that of the sink from {wanted.sink_url_env or SINK_URL}." if wanted.sink == "postgres" else "."),
        "",
    ]


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _refused(f"{path} cannot be written: {error.strerror}", "name another file with --output") from None


def _closing(wanted: Wanted, streams: Sequence[Stream]) -> list[str]:
    synced = [stream for stream in streams if stream.left_out is None]
    onward = sum("cursor" in stream.options for stream in synced)
    left = len(streams) - len(synced)
    ways = ((onward, "by a cursor"), (len(synced) - onward, "read whole in every run"))
    how = ", ".join(f"{number} {way}" for number, way in ways if number)
    lines = [f"Wrote {wanted.output}: {count(len(synced), 'stream')}, {how}" + (f"; {left} left out." if left else ".")]
    lines.append("Next:")
    if os.environ.get(wanted.url_env) != (wanted.url or os.environ.get(wanted.url_env)):
        lines.append(f"  export {wanted.url_env}='…'      the URL that you gave; the file does not hold it")
    return [*lines, f"  penstock check {wanted.output}", f"  penstock run {wanted.output}"]


def _nothing(wanted: Wanted, streams: Sequence[Stream]) -> InputError:
    if not streams:
        what = f"there is nothing to sync in schema {wanted.schema}"
        return _refused(what + (" by these patterns" if wanted.include or wanted.exclude else ""), "see --schema")
    first = streams[0]
    return _refused(
        f"none of {count(len(streams), 'table')} in schema {wanted.schema} can be synced; the first, "
        f"{first.offered.name}: {first.left_out}",
        "put that right, and call init again",
    )


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)
