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
from penstock.sources import stripe
from penstock.sources.rest import AccountSource, Options, StreamOptions
from penstock.sources.rest.source import RestSource
from penstock.sources.stripe.source import StripeSource
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

    def open(self) -> RestSource:
        return source(self.server, self.folder, {self.stream: self.options})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> RestSource:
        return source(self.server, self.folder, {stream: options})

    def arrive(self, count: int) -> None:
        if count:
            self.server.arrive(self.stream, count, in_a_second=40)

    def rows(self) -> Sequence[Hashable]:
        return [id_ for id_, _ in self.server.objects(self.stream)]

    def traces(self) -> Hashable:
        return (*self.server.objects(self.stream), *sorted(map(str, self.folder.rglob("*"))))

    def vanish(self) -> None:
        for id_, _ in self.server.objects(self.stream):
            self.server.remove(self.stream, id_)

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        ids: list[Hashable] = batch.column("id").to_pylist()
        return ids


class ChangingList(List):
    """Charges that change after they were created, and are deleted by a field that says so."""

    def __init__(self, server: RestServer, folder: Path, **options: Any) -> None:
        changes = {"updated": "updated", "deleted": "gone", "rescan": "7d"}
        super().__init__(
            server,
            folder,
            time={"lag": 0},
            changes=changes,
            columns={"amount": "int64"},
            paging={"size": 10},
            **options,
        )

    def change(self) -> None:
        ids = [id_ for id_, _ in self.server.objects(self.stream)]
        self._alter(ids[0], amount=1)
        self._alter(ids[1], gone=True)
        self._alter(ids[2], gone=True)
        self._alter(ids[0], amount=2)
        self._alter(ids[1], gone=False, amount=3)
        self._alter(ids[39], amount=4)

    def _alter(self, id_: str, **fields: Any) -> None:
        self.server.alter(self.stream, id_, updated=self.server.now, **fields)
        self.server.set_clock(self.server.now + 1)

    def current(self) -> Mapping[Hashable, Hashable]:
        objects = self.server.bodies(self.stream)
        return {each["id"]: each["amount"] for each in objects if not each.get("gone")}

    def tell_changes(self, batch: pa.RecordBatch) -> Sequence[tuple[Hashable, Hashable, str]]:
        columns = (batch.column(name).to_pylist() for name in ("id", "amount", "_change"))
        return list(zip(*columns, strict=True))


class Charges(List):
    """Charges of a Stripe account."""

    def arrive(self, count: int) -> None:
        super().arrive(count)
        # Past the lag, below which nothing is read.
        self.server.set_clock(self.server.now + 120)

    def open(self) -> StripeSource:
        return self.open_with(self.stream, self.options)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> StripeSource:
        account = stripe.Options.model_validate(
            {"base_url": f"{self.server.url}/v1", "api_key": "sk_test_password", "rate_limit": 1000}
        )
        context = Context(pipeline=PIPELINE, folder=str(self.folder), probe=NoProbe(), spools=self.spools)
        return stripe.build(account, {stream: stripe.StreamOptions.model_validate(options)}, context)
