"""Whether a stream may land in a table that is there already. Asked by `check`, and again when its first slice lands:
the table may have been made, or filled, in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, refuse_all
from penstock.lake.standing import Standing
from penstock.sinks.lake.options import StreamOptions


@dataclass(frozen=True)
class Admission:
    """One stream at the door of one table."""

    pipeline: str
    stream: str
    #: the table with its namespace
    table: str
    kind: Kind
    options: StreamOptions
    #: the user has named the table, or its namespace
    named: bool
    content: Content

    def check(self, standing: Standing) -> None:
        """StreamRefused if the table holds what this stream must not touch."""
        refuse_all(self.problems(standing))

    def problems(self, standing: Standing) -> Iterator[StreamRefused]:
        """Everything that keeps the stream out of the table."""
        if not standing.ours and not self.options.into_existing:
            yield self._refused(
                f"the table {self.table} is there already, and penstock did not make it",
                "set `into_existing: true` on the stream to land in it (it gets the column _ingest_seq), or name "
                "another table with `into`",
            )
        if self.content.identity.get("uuid") == standing.uuid:
            yield self._refused(
                f"the table {self.table} is the one that the stream reads: its rows would go into itself",
                "name another table with `into` on the stream, or another `namespace` of the sink",
            )
        yield from self._others(standing)
        if self.kind is Kind.REFRESH and not self.options.replace_existing:
            yield from self._rows(standing)

    def _others(self, standing: Standing) -> Iterator[StreamRefused]:
        others = [about for about in standing.links() if about[0] != self.pipeline]
        if not others:
            return
        pipeline, stream = others[0]
        if self.kind is Kind.REFRESH:
            yield self._refused(
                f"a full refresh would replace all of {self.table}, where pipeline {pipeline!r} lands too",
                "name another `into`, or give the stream a cursor",
            )
        elif not self.named:
            yield self._refused(
                f"pipeline {pipeline!r} lands its stream {stream!r} in the table {self.table}",
                "set `namespace` of the sink or `into` of the stream to another name; or, to share the table, to this "
                "one",
            )

    def _rows(self, standing: Standing) -> Iterator[StreamRefused]:
        """A refresh deletes whatever is in the table: it must be this stream's own."""
        if standing.empty:
            return
        step = "set `replace_existing: true` on the stream if they may go; if not, name another table with `into`"
        link = standing.link(self.pipeline, self.stream)
        if link is None or (standing.adopted and link.kind == Kind.ROWS.value):
            yield self._refused(
                f"the table {self.table} already holds rows, and the first full refresh would delete them", step
            )
        elif any(snapshot.operation in ("append", "overwrite") for snapshot in standing.foreign()):
            yield self._refused(
                f"other programs have put rows into the table {self.table}, and a full refresh would delete them", step
            )

    def _refused(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(
            what, next_step=step, safe="Nothing was changed.", pipeline=self.pipeline, stream=self.stream
        )
