"""`init --add`: adds streams for missing tables to a pipeline file, and changes nothing else in it."""

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
from penstock.cli.init.file_text import Stream, stream_lines
from penstock.cli.init.origin import refuse
from penstock.cli.init.proposal import InitOptions, check_streams, filter_tables, streams_for
from penstock.cli.shared.render import count
from penstock.config.pipeline_choice import choose_pipeline
from penstock.ports import DiscoveredStream, discover


def add(wanted: InitOptions) -> None:
    """Add streams for tables that no stream of the pipeline reads, or print the new file."""
    path = Path(wanted.output)
    if not path.exists():
        raise refuse(f"there is no file {path} to add tables to", f"omit --add: penstock init -o {path}")
    file = wiring.load(wanted.output)
    name = wanted.pipeline or choose_pipeline(file, None, "penstock init --add -o FILE")
    text = path.read_text(encoding="utf-8")
    place = _InsertionPoint.of(text, name, wanted.output)
    with closing(wiring.build_source(file, name)) as source:
        offers = filter_tables(discover(source), wanted.include, wanted.exclude)
    taken = file.pipelines[name].source_streams
    missing = [_rename(offered, taken) for offered in offers if offered.read_by is None]
    with closing(wiring.build_sink(file, name)) as sink:
        streams = streams_for(missing, sink, views=wanted.views)
    streams = _check_streams(path, name, text, place, streams)
    added = [stream for stream in streams if stream.left_out is None]
    if wanted.stdout:
        print(place.insert(text, added), end="")
        return
    if added:
        _replace(path, place.insert(text, added))
    for stream in streams:
        if stream.left_out is not None:
            print(f"Left out: {stream.offered.name}: {stream.left_out}")
    if not added:
        print(f"Nothing to add: {wanted.output} already has every table that can be synced.")
        return
    print(f"Added {count(len(added), 'stream')} to {wanted.output}: {', '.join(s.offered.name for s in added)}.")
    print(f"Next:\n  penstock check {wanted.output}\n  penstock run {wanted.output}")


class _InsertionPoint:
    """The position in a file's text where new streams are inserted."""

    def __init__(self, line: int, indent: str) -> None:
        self.line, self.indent = line, indent

    @classmethod
    def of(cls, text: str, pipeline: str, file: str) -> _InsertionPoint:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        for key in ("pipelines", pipeline, "streams"):
            node = _value(node, key)
        if node is None or not isinstance(node, yaml.MappingNode) or not node.value:
            raise refuse(
                f"pipeline {pipeline} of {file} lists no streams, so it already syncs every table of its schema",
                "no change is needed; list the tables: `penstock discover FILE`",
            )
        if node.flow_style:
            raise refuse(
                f"the streams of pipeline {pipeline} are written in braces, where init cannot add any",
                "write each stream on a line of its own, then run init --add again",
            )
        last = node.value[-1][1]
        return cls(_last_line(text, last), " " * node.value[0][0].start_mark.column)

    def insert(self, text: str, streams: list[Stream]) -> str:
        """Return the text with streams added."""
        lines = text.splitlines()
        lines[self.line : self.line] = stream_lines(streams, self.indent)
        return "\n".join(lines) + "\n"


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                inner: yaml.Node = value
                return inner
    return None


def _last_line(text: str, node: yaml.Node) -> int:
    """The last line of a value; YAML's end mark of a block includes the blank lines and comments after it."""
    end = node.end_mark
    lines = text.splitlines()
    number = end.line + (1 if end.column else 0)
    while number > node.start_mark.line + 1 and (
        not lines[number - 1].strip() or lines[number - 1].lstrip()[:1] == "#"
    ):
        number -= 1
    return number


def _rename(offered: DiscoveredStream, taken: Collection[str]) -> DiscoveredStream:
    """The table under another stream name if its own name is taken by a stream that reads another table."""
    name, number = offered.name, 1
    while name in taken:
        number += 1
        name = f"{offered.name}_{number}"
    if name == offered.name:
        return offered
    return replace(offered, name=name, options={**offered.options_if_renamed, **offered.options})


def _check_streams(
    path: Path, pipeline: str, text: str, place: _InsertionPoint, streams: Sequence[Stream]
) -> list[Stream]:
    """Check the streams with source and sink; a refused stream is left out, with the reason."""
    wanted = [stream for stream in streams if stream.left_out is None]
    if not wanted:
        return list(streams)
    # In the file's own folder, because its relative paths start there.
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", suffix=".yaml", encoding="utf-8") as trial:
        trial.write(place.insert(text, wanted))
        trial.flush()
        file = wiring.load(trial.name)
        return check_streams(streams, wiring.build_source(file, pipeline), wiring.build_sink(file, pipeline))


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
