"""What `init --add` does: writes the tables that a pipeline file lacks into it. Everything else in it stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import yaml

from penstock import wiring
from penstock.cli.proposing.file import Stream, stream_lines
from penstock.cli.proposing.offers import Wanted, agreed, chosen_of, streams_for
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.config.choosing import only
from penstock.errors import UNTOUCHED, InputError
from penstock.links.postgres.literals import TableName
from penstock.ports import DiscoveredStream, discover
from penstock.sources.postgres.options import Options, StreamOptions
from penstock.sources.postgres.validate import table_name


def add(wanted: Wanted) -> None:
    """Write streams for tables that no stream of the pipeline reads, or print the new file."""
    path = Path(wanted.output)
    if not path.exists():
        raise _refused(f"there is no file {path} to add tables to", f"leave out --add: penstock init -o {path}")
    file = wiring.load(wanted.output)
    name = wanted.pipeline or only(file, None, "penstock init --add -o FILE")
    text = path.read_text(encoding="utf-8")
    place = _Place.of(text, name, wanted.output)
    with closing(wiring.build_source(file, name)) as source:
        offers = chosen_of(discover(source), wanted.include, wanted.exclude)
    streams = _lacking(file, name, offers, views=wanted.views)
    streams = _agreed(path, name, text, place, streams)
    added = [stream for stream in streams if stream.left_out is None]
    if wanted.stdout:
        print(place.filled(text, added), end="")
        return
    if added:
        _replace(path, place.filled(text, added))
    for stream in streams:
        if stream.left_out is not None:
            print(f"Left out: {stream.offered.name}: {stream.left_out}")
    if not added:
        print(f"Nothing to add: {wanted.output} has every table that can be synced.")
        return
    print(f"Added {count(len(added), 'stream')} to {wanted.output}: {', '.join(s.offered.name for s in added)}.")
    print(f"Next:\n  penstock check {wanted.output}\n  penstock run {wanted.output}")


class _Place:
    """Where in the text of a file new streams go."""

    def __init__(self, line: int, indent: str) -> None:
        self.line, self.indent = line, indent

    @classmethod
    def of(cls, text: str, pipeline: str, file: str) -> _Place:
        found: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        for key in ("pipelines", pipeline, "streams"):
            found = _value(found, key)
        if found is None or not isinstance(found, yaml.MappingNode) or not found.value:
            raise _refused(
                f"pipeline {pipeline} of {file} lists no streams: it syncs every table of its schema already",
                "nothing; `penstock discover FILE` shows them",
            )
        if found.flow_style:
            raise _refused(
                f"the streams of pipeline {pipeline} stand on one line in braces, where nothing can be added by itself",
                "write each stream on a line of its own, then call init --add again",
            )
        last = found.value[-1][1]
        return cls(_last_line(text, last), " " * found.value[0][0].start_mark.column)

    def filled(self, text: str, streams: list[Stream]) -> str:
        """The text with streams added."""
        lines = text.splitlines()
        lines[self.line : self.line] = stream_lines(streams, self.indent)
        return "\n".join(lines) + "\n"


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                found: yaml.Node = value
                return found
    return None


def _last_line(text: str, node: yaml.Node) -> int:
    """The number of lines up to the end of a value; the marks of a block reach into what follows it."""
    end = node.end_mark
    lines = text.splitlines()
    number = end.line + (1 if end.column else 0)
    while number > node.start_mark.line + 1 and (
        not lines[number - 1].strip() or lines[number - 1].lstrip()[:1] == "#"
    ):
        number -= 1
    return number


def _lacking(file: File, pipeline: str, offers: Sequence[DiscoveredStream], *, views: bool) -> list[Stream]:
    """Streams for tables that no stream reads, under names that no stream has."""
    chosen = file.pipelines[pipeline]
    if not isinstance(chosen.source, Options):
        raise _refused(
            f"pipeline {pipeline} reads from {chosen.source_type}, and init knows the tables of Postgres only",
            "add the streams by hand; `penstock discover FILE` lists what there is",
        )
    schema = chosen.source.default_schema
    read = {
        table_name(stream, options, schema)
        for stream, options in chosen.source_streams.items()
        if isinstance(options, StreamOptions)
    }
    into = [getattr(options, "into", None) or stream for stream, options in chosen.sink_streams.items()]
    lacking = [_named(offered, chosen.source_streams) for offered in offers if _table(offered, schema) not in read]
    return streams_for(lacking, chosen.sink_type, views=views, tables=into)


def _table(offered: DiscoveredStream, schema: str) -> TableName:
    return table_name(offered.name, StreamOptions.model_validate(dict(offered.options)), schema)


def _named(offered: DiscoveredStream, taken: Collection[str]) -> DiscoveredStream:
    """What is offered, under another name if a stream that reads another table has its own."""
    name, number = offered.name, 1
    while name in taken:
        number += 1
        name = f"{offered.name}_{number}"
    if name == offered.name:
        return offered
    table = offered.options.get("table") or '"' + offered.name.replace('"', '""') + '"'
    return replace(offered, name=name, options={"table": table, **offered.options})


def _agreed(path: Path, pipeline: str, text: str, place: _Place, streams: Sequence[Stream]) -> list[Stream]:
    """The streams as both sides take them; one that is refused is left out, with its reason."""
    wanted = [stream for stream in streams if stream.left_out is None]
    if not wanted:
        return list(streams)
    # Beside the file, because its relative paths start there.
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", suffix=".yaml", encoding="utf-8") as trial:
        trial.write(place.filled(text, wanted))
        trial.flush()
        file = wiring.load(trial.name)
        return agreed(streams, wiring.build_source(file, pipeline), wiring.build_sink(file, pipeline))


def _replace(path: Path, text: str) -> None:
    """The new text in the place of the old, at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)
