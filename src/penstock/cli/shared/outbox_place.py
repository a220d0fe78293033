"""The outbox of a pipeline, as a command works on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.shared.error_report import report_errors

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.sources.outbox.applying import Resolved
    from penstock.sources.outbox.load.declared import Load
    from penstock.sources.outbox.options import Options, StreamOptions
    from penstock.sources.outbox.server import Server
    from penstock.sources.outbox.triggers import Change


@dataclass(frozen=True)
class Place:
    """A pipeline with an outbox source."""

    file: File
    pipeline: str
    options: Options
    streams: Mapping[str, StreamOptions]
    server: Server

    def resolve(self) -> Resolved:
        """Resolve every stream of the file; StreamRefused with every problem."""
        from penstock.sources.outbox.applying import resolve

        resolved = resolve(self.server.session, self.options, self.streams)
        resolved.require_all()
        return resolved

    def loads(self, *, asked: bool = True) -> dict[str, tuple[Load, ...]]:
        """The first loads of each stream, as the file declares them; StreamRefused without an outbox.

        Without `asked`, requests of `penstock loads` are left out.
        """
        from penstock.sources.outbox.load.declared import loads_of
        from penstock.sources.outbox.load.requests import read_requests, with_requests
        from penstock.sources.outbox.registry import watched_since

        resolved = self.resolve()
        self.server.read_state()
        since = watched_since(self.server, self.pipeline)
        requests = read_requests(self.server, self.pipeline) if asked else {}
        known = {table.name: table for table in resolved.tables}
        return {
            name: with_requests(name, loads_of(resolved.entities[name], known, since), requests)
            for name, each in self.streams.items()
            if each.first_load
        }


@contextmanager
def outbox_place(
    path: str, sets: Sequence[str] | None, pipeline: str | None, command: str, *, as_json: bool
) -> Iterator[Place]:
    """Open the outbox of a pipeline; reports errors. `command` is the command without the pipeline."""
    with report_errors(path, as_json=as_json):
        from penstock import wiring
        from penstock.config.pipeline_choice import choose_pipeline
        from penstock.errors import UNTOUCHED, InputError, PenstockError
        from penstock.sources.outbox import Options
        from penstock.sources.outbox.server import Server

        file = wiring.load(path, sets or ())
        name = choose_pipeline(file, pipeline, command)
        chosen = file.pipelines[name]
        if not isinstance(chosen.source, Options):
            raise InputError(
                f"pipeline '{name}' has a source of type {chosen.source_type}: only an outbox is filled by triggers",
                safe=UNTOUCHED,
                next_step="set `type: outbox` of its source, or name another pipeline with --pipeline",
                pipeline=name,
            )
        streams: dict[str, Any] = dict(chosen.source_streams)
        server = Server(chosen.source, wiring.context_for(file, name))
        try:
            yield Place(file, name, chosen.source, streams, server)
        except PenstockError as error:
            raise error.at(pipeline=name) from None
        finally:
            server.close()


def change_document(change: Change) -> dict[str, Any]:
    """A change as JSON."""
    from penstock.links.postgres.literals import to_text

    return {
        "what": change.what,
        "about": change.about,
        "why": change.why,
        "sql": [to_text(statement) for statement in change.statements],
    }
