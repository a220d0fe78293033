"""`init --outbox`: a pipeline file for one entity, put together from tables that foreign keys relate."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.cli.init.file_text import Stream, file_text
from penstock.cli.init.origin import postgres_origin, refuse
from penstock.cli.init.proposal import InitOptions, filter_names, opening_lines, shown_sink, write_file
from penstock.cli.shared.render import count
from penstock.ports import Context, DiscoveredStream, NoProbe

#: sinks that apply ops to one row for each entity
STATE_SINKS = ("lake", "postgres")


def propose_outbox(wanted: InitOptions, entity: str | None) -> None:
    """Write or print the file, and print the next steps. Only the catalog of the database is read."""
    from penstock.sources.outbox import Options, StreamOptions
    from penstock.sources.outbox.applying import resolve
    from penstock.sources.outbox.proposing import propose_entity, read_related
    from penstock.sources.outbox.server import Server

    if wanted.source is not None or wanted.path or wanted.auth or wanted.views:
        raise refuse("--outbox reads the tables of a Postgres database", "omit --source, --path, --auth and --views")
    sink = shown_sink(wanted)
    origin = postgres_origin(wanted.url, wanted.url_env, wanted.schema)
    name = wanted.pipeline or origin.name
    folder = os.path.dirname(os.path.abspath(wanted.output))
    options = Options.model_validate({"url": origin.options["url"], "schema": wanted.schema})
    with closing(Server(options, Context(name, folder, NoProbe()))) as server:
        tables = read_related(server.session.rows, wanted.schema)
        chosen = set(filter_names([each.name for each in tables], wanted.include, wanted.exclude))
        proposal = propose_entity([each for each in tables if each.name in chosen], entity)
        stream = proposal.entity.name
        streams = {stream: StreamOptions.model_validate(proposal.options)}
        resolve(server.session, options, streams).require_all()
    mode: dict[str, Any] = {"mode": "state"} if wanted.sink in STATE_SINKS else {}
    about = DiscoveredStream(
        stream,
        "entity",
        (),
        primary_key=proposal.entity.key,
        rows=proposal.entity.rows,
        reasons=tuple(proposal.reasons),
    )
    opening = (
        f"Proposed by `penstock init --outbox` from the foreign keys of schema {wanted.schema}. Change whatever you "
        "know better: leave out columns and tables that nobody reads.",
        "Triggers write each change into an outbox, deletes included: `penstock triggers apply` creates them.",
    )
    text = file_text(
        opening_lines(wanted, opening, sink),
        name,
        {**origin.shown, "type": "outbox"},
        sink,
        [Stream(about, {**mode, **proposal.options})],
    )
    if wanted.stdout:
        print(text, end="")
        return
    write_file(Path(wanted.output), text, force=wanted.force)
    print(f"Wrote {wanted.output}: stream {stream}, fed by {count(len(proposal.tables), 'table')}.")
    print("Next:")
    if wanted.url and os.environ.get(wanted.url_env) != wanted.url:
        print(f"  export {wanted.url_env}='…'      the URL you passed; the file does not contain it")
    for verb in ("triggers plan", "triggers apply", "run"):
        print(f"  penstock {verb} {wanted.output}")
