"""A sink that sends over a real socket, and slices for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.marks import Position
from penstock.core.slices import Receipt, Slice
from penstock.links.spools import FolderSpools
from penstock.ports import Context, NoProbe, Probe
from penstock.sinks.http import HttpSink, Options, StreamOptions, build
from penstock.testing.contracts.delivery import PIPELINE, STREAM, after, stage_parts, table

SECRET = "s3cret-token"


@dataclass
class Sending:
    """Sinks of one pipeline, each as another process would have it."""

    folder: Path
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    streams: Mapping[str, StreamOptions] = field(default_factory=dict)
    #: what the store would say of the stream
    last: Position | None = None
    #: what the sinks have said
    said: list[str] = field(default_factory=list)
    _open: list[HttpSink] = field(default_factory=list)

    def sink(self, probe: Probe | None = None, **options: Any) -> HttpSink:
        quick = {"retry_seconds": 0.001, "retry_most": 0.001, "wait": 20, "timeout": 10, "auth": {"bearer": SECRET}}
        context = Context(
            PIPELINE,
            str(self.folder),
            probe or NoProbe(),
            spools=FolderSpools(str(self.folder / "spools"), PIPELINE),
            say=lambda _stream, text: self.said.append(text),
            last_position=lambda _stream: self.last,
        )
        sink = build(
            Options.model_validate({"url": self.url, **quick, **self.options, **options}), self.streams, context
        )
        self._open.append(sink)
        return sink

    def stage(self, *ids: int, last: Position | None = None, **options: Any) -> tuple[Slice, Sequence[Receipt]]:
        """A slice with these rows, staged and not sent."""
        slice_ = after(last)
        return slice_, stage_parts(self.sink(**options), slice_, table(*ids))

    def send(self, *ids: int, last: Position | None = None, **options: Any) -> Slice:
        """A slice with these rows, sent."""
        slice_, receipts = self.stage(*ids, last=last, **options)
        self.sink(**options).commit(slice_, "a1", receipts)
        return slice_

    def close(self) -> None:
        for sink in self._open:
            sink.close()


__all__ = ["PIPELINE", "SECRET", "STREAM", "Sending"]
