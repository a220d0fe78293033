"""Proposes streams for `init`: asks the source what it could give, has the sink check it, writes the file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock import sinks, sources
from penstock.cli.init.file_text import Stream, Variable, file_text
from penstock.cli.init.origin import Origin, api_origin, other_origin, postgres_origin, refuse
from penstock.cli.shared.render import count
from penstock.config.load import names_of
from penstock.core.names import suggest
from penstock.errors import InputError, StreamRefused
from penstock.ports import Context, DiscoveredStream, NoProbe, Proposing, Sink, Source, capability, discover

#: the default environment variable for the URL of a postgres sink
SINK_URL = "SINK_URL"


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of the command line, under the names of the verb's parameters."""

    url: str | None
    url_env: str
    source: str | None
    path: list[str] | None
    auth: list[str] | None
    output: str
    pipeline: str | None
    schema: str
    include: list[str] | None
    exclude: list[str] | None
    views: bool
    sink: str
    directory: str | None
    warehouse: str | None
    sink_url_env: str | None
    sink_schema: str | None
    stdout: bool
    force: bool


def propose(wanted: InitOptions) -> None:
    """Write or print the file, and print the next steps."""
    shown = shown_sink(wanted)
    origin = _origin(wanted)
    name = wanted.pipeline or origin.name
    context = Context(pipeline=name, folder=os.path.dirname(os.path.abspath(wanted.output)), probe=NoProbe())
    sink_options = _with_url(shown, wanted, origin.options.get("url"))
    with closing(_build(sources, origin.options, origin.streams, context)) as source:
        offers = filter_tables(discover(source), wanted.include, wanted.exclude)
    with closing(_build(sinks, sink_options, {}, context)) as sink:
        streams = streams_for(offers, sink, views=wanted.views)
    options = {stream.offered.name: stream.options for stream in streams if stream.left_out is None}
    if options:
        source = _build(sources, origin.options, options, context)
        streams = check_streams(streams, source, _build(sinks, sink_options, options, context))
    if not any(stream.left_out is None for stream in streams):
        raise _nothing(wanted, origin, streams)
    text = file_text(_opening(wanted, origin, shown), name, origin.shown, shown, streams)
    if wanted.stdout:
        print(text, end="")
        return
    write_file(Path(wanted.output), text, force=wanted.force)
    print("\n".join(_next_steps(wanted, origin, streams)))


# ---------------------------------------------------------------- both sides


def shown_sink(wanted: InitOptions) -> dict[str, Any]:
    """The sink as the file has it; InputError for a variable that is none, and for a file that exists."""
    for variable in (wanted.url_env, wanted.sink_url_env or SINK_URL):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise refuse(f"{variable!r} is not a valid name of an environment variable", "use letters, digits and _")
    if not wanted.stdout and not wanted.force and os.path.lexists(wanted.output):
        raise refuse(
            f"{wanted.output} already exists",
            "use --add to add missing tables, --force to replace the file, or --output to write another file",
        )
    return {"type": wanted.sink, **_sink_options(wanted)}


def _origin(wanted: InitOptions) -> Origin:
    """The source, by --source or by the URL."""
    is_address = (wanted.url or "").startswith(("http://", "https://"))
    type_ = wanted.source or ("rest" if is_address or wanted.path else "postgres")
    if type_ in ("rest", "stripe"):
        return api_origin(type_, wanted.url, wanted.path or (), wanted.auth or (), os.environ)
    for option, given in (("--path", wanted.path), ("--auth", wanted.auth)):
        if given:
            raise refuse(f"{option} is for an API", "give the address of the API, or --source stripe")
    if type_ == "postgres":
        return postgres_origin(wanted.url, wanted.url_env, wanted.schema)
    return other_origin(type_, wanted.url, wanted.url_env)


def _sink_options(wanted: InitOptions) -> dict[str, Any]:
    """The sink's options as the file has them; an option of the command line needs a key of that name."""
    try:
        keys = names_of(sinks.load(wanted.sink).Options)
    except KeyError:
        raise refuse(
            f"there is no sink type '{wanted.sink}'; {suggest(wanted.sink, sinks.types(), 'sinks')}",
            "choose a sink, for example --sink files",
        ) from None
    url = Variable(wanted.sink_url_env or SINK_URL)
    options: dict[str, Any] = {}
    for option, key, given, value in (
        ("--directory", "directory", wanted.directory, wanted.directory or "out"),
        ("--warehouse", "warehouse", wanted.warehouse, wanted.warehouse or "lake"),
        ("--sink-url-env", "url", wanted.sink_url_env, url),
        ("--sink-schema", "schema", wanted.sink_schema, wanted.sink_schema or wanted.schema),
    ):
        if key in keys:
            options[key] = value
        elif given:
            step = f"omit {option}, or choose another --sink"
            raise refuse(f"{option} cannot be used with --sink {wanted.sink}", step)
    return options


def _with_url(shown: Mapping[str, Any], wanted: InitOptions, source: str | None) -> dict[str, Any]:
    """The sink's options with the URL from the environment, checked against the source's."""
    if "url" not in shown:
        return dict(shown)
    variable = wanted.sink_url_env or SINK_URL
    url = os.environ.get(variable)
    if not url:
        raise refuse(
            f"--sink {wanted.sink} needs the sink's URL in the environment variable {variable}, which is not set",
            f"set {variable}, or name another variable with --sink-url-env",
        )
    if url == source and shown.get("schema") == wanted.schema:
        raise refuse(
            f"source and sink are the same schema {wanted.schema}: the tables would be written into themselves",
            "choose another schema with --sink-schema, or another database",
        )
    return {**shown, "url": url}


def _build(
    registry: Any, options: Mapping[str, Any], streams: Mapping[str, Mapping[str, Any]], context: Context
) -> Any:
    """Build a source or sink from the options of a pipeline file."""
    module = registry.load(options["type"])
    try:
        chosen = module.Options.model_validate({k: v for k, v in options.items() if k != "type"})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        raise refuse(f"{'.'.join(map(str, first['loc']))}: {text}", "correct the value, and run init again") from None
    known = names_of(module.StreamOptions)
    own = {
        name: module.StreamOptions.model_validate({k: v for k, v in each.items() if k in known})
        for name, each in streams.items()
    }
    return module.build(chosen, own, context)


def check_streams(streams: Sequence[Stream], source: Source, sink: Sink) -> list[Stream]:
    """Have the sink check every stream; closes source and sink."""
    try:
        sink.connect()
        infos = {info.name: info for info in source.catalog()}
        sink.begin_run(list(infos.values()))
        checked = []
        for stream in streams:
            refused = stream.left_out
            if refused is None:
                try:
                    sink.check(infos[stream.offered.name], source.content(stream.offered.name))
                except StreamRefused as error:
                    refused = f"{error.what}: {error.next_step}"
            checked.append(replace(stream, left_out=refused))
        return checked
    finally:
        sink.close()
        source.close()


# ---------------------------------------------------------------- the streams


def filter_tables(
    offers: Sequence[DiscoveredStream], include: Sequence[str] | None, exclude: Sequence[str] | None
) -> list[DiscoveredStream]:
    """The tables that match the patterns."""

    names = set(filter_names([each.name for each in offers], include, exclude))
    return [each for each in offers if each.name in names]


def filter_names(names: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str] | None) -> list[str]:
    """The names that match the patterns."""

    def matches(name: str, patterns: Sequence[str] | None) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns or ())

    return [name for name in names if (not include or matches(name, include)) and not matches(name, exclude)]


def streams_for(offers: Sequence[DiscoveredStream], sink: Sink, *, views: bool) -> list[Stream]:
    """Streams for the file, with the options that the sink proposes."""
    streams = []
    proposing = capability(sink, Proposing)
    proposed = proposing.propose(offers) if proposing else [{}] * len(offers)
    for offered, options in zip(offers, proposed, strict=True):
        left_out = offered.refused
        if left_out is None and not offered.stores_rows and not views:
            left_out = "it stores no rows of its own; to read it in full in every run, remove the # or use --views"
        streams.append(Stream(offered, {**offered.options, **options}, left_out))
    return streams


# ---------------------------------------------------------------- the file, and the printed text


def opening_lines(wanted: InitOptions, opening: Sequence[str], sink: Mapping[str, Any]) -> list[str]:
    """The first comment of a file for a database."""
    of_sink, holds = wanted.sink_url_env or SINK_URL, f"The environment variable {wanted.url_env} holds the URL"
    return [*opening, f"{holds}; {of_sink} holds that of the sink." if "url" in sink else f"{holds}.", ""]


def _opening(wanted: InitOptions, origin: Origin, sink: Mapping[str, Any]) -> list[str]:
    of_sink = wanted.sink_url_env or SINK_URL
    if "url" in origin.options:
        return opening_lines(wanted, origin.opening, sink)
    holds = f"The environment variable {of_sink} holds the URL of the sink."
    return [*origin.opening, *([holds] if "url" in sink else []), ""]


def write_file(path: Path, text: str, *, force: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise refuse(f"{path} cannot be written: {error.strerror}", "choose another file with --output") from None


def _next_steps(wanted: InitOptions, origin: Origin, streams: Sequence[Stream]) -> list[str]:
    synced = [stream for stream in streams if stream.left_out is None]
    with_cursor = sum("cursor" in stream.options for stream in synced)
    only_new = sum(stream.offered.reads_only_new for stream in synced)
    left = len(streams) - len(synced)
    ways = (
        (with_cursor, "with a cursor"),
        (only_new, "new objects only"),
        (len(synced) - with_cursor - only_new, "full refresh in every run"),
    )
    how = ", ".join(f"{number} {way}" for number, way in ways if number)
    lines = [f"Wrote {wanted.output}: {count(len(synced), 'stream')}, {how}" + (f"; {left} left out." if left else ".")]
    lines.append("Next:")
    if "url" in origin.options and wanted.url and os.environ.get(wanted.url_env) != wanted.url:
        lines.append(f"  export {wanted.url_env}='…'      the URL you passed; the file does not contain it")
    return [*lines, f"  penstock check {wanted.output}", f"  penstock run {wanted.output}"]


def _nothing(wanted: InitOptions, origin: Origin, streams: Sequence[Stream]) -> InputError:
    if not streams:
        what = f"there are no {origin.noun}s to sync in {origin.place}"
        return refuse(
            what + (" that match these patterns" if wanted.include or wanted.exclude else ""),
            "choose another schema with --schema" if origin.noun == "table" else "choose other patterns",
        )
    first = streams[0]
    return refuse(
        f"none of {count(len(streams), origin.noun)} in {origin.place} can be synced; the first, "
        f"{first.offered.name}: {first.left_out}",
        "fix the problem, and run init again",
    )
