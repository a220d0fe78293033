"""A list of an API as the origin of a contract, and sources on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.harness.rest_server import RestServer

from penstock.core.marks import Mark
from penstock.links.spools import FolderSpools
from penstock.ports import Context, NoProbe, Probe, Report, no_mark, report_nothing
from penstock.sources.rest import AccountSource, ChangingSource, Options, StreamOptions
from penstock.testing.contracts.source import PIPELINE


def source(
    server: RestServer,
    folder: Path,
    streams: Mapping[str, Mapping[str, Any]],
    *,
    said: list[str] | None = None,
    warned: list[str] | None = None,
    report: Report = report_nothing,
    last_mark: Callable[[str], Mark | None] = no_mark,
    probe: Probe | None = None,
    **more: Any,
) -> AccountSource:
    """A source on a server; `said` gets the lines that it prints, and its warnings unless `warned` gets them."""
    warnings = said if warned is None else warned
    options = Options(base_url=f"{server.url}/v1", retry_seconds=0.01, **more)
    lines: list[str] = [] if said is None else said
    context = Context(
        pipeline=PIPELINE,
        folder=str(folder),
        probe=probe or NoProbe(),
        spools=FolderSpools(str(folder / "spools"), PIPELINE),
        say=lambda stream, text: lines.append(f"{stream}: {text}"),
        warn=lambda stream, text: (lines if warnings is None else warnings).append(f"{stream}: {text}"),
        report=report,
        last_mark=last_mark,
    )
    return AccountSource(options, {name: StreamOptions(**each) for name, each in streams.items()}, context)


class List:
    """Charges, several in each second."""

    stream = "charges"

    def __init__(self, server: RestServer, folder: Path, **options: Any) -> None:
        self.server, self.folder, self.options = server, folder, options

    @property
    def spools(self) -> FolderSpools:
        return FolderSpools(str(self.folder / "spools"), PIPELINE)

    def open(self) -> ChangingSource:
        return source(self.server, self.folder, {self.stream: self.options})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> ChangingSource:
        return source(self.server, self.folder, {stream: options})

    def arrive(self, count: int) -> None:
        if count:
            self.server.arrive(self.stream, count, in_a_second=40)

    def rows(self) -> Sequence[Hashable]:
        return [id_ for id_, _ in self.server.objects(self.stream)]

    def traces(self) -> Hashable:
        return tuple(self.server.objects(self.stream))

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        ids: list[Hashable] = batch.column("id").to_pylist()
        return ids
