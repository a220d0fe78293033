"""Requests about loads: to make one again, to give one up, to void what one has said. Kept beside the outbox.

A request changes the identity of a load, and so what the next run does with it. An open slice is finished first,
because its plan is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import sql

from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError, StreamRefused
from penstock.links.postgres.literals import TableName, load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sources.outbox.failures import explained
from penstock.sources.outbox.load.declared import Load, digest
from penstock.sources.outbox.load.dumps import Dump, Hold
from penstock.sources.outbox.server import Server

PACKAGE = "penstock.sources.outbox"

#: by (stream, load)
Requests = Mapping[tuple[str, str], "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for about one load."""

    #: with another time, what the table said before is void; None: as if nothing was asked
    since: str | None
    #: False: the load was dropped
    wanted: bool
    #: the declaration of the stream for which it waits for files, or for which they were given; None: no files
    declared: str | None = None
    hold: Hold | None = None
    dump: Dump | None = None


def read_requests(server: Server, pipeline: str) -> dict[tuple[str, str], Request]:
    """The requests of a pipeline; an outbox of an earlier penstock has no table for them."""
    name = sql.Identifier(server.options.outbox_schema, "loads")
    if server.session.rows(sql.SQL("SELECT to_regclass({})::text").format(sql.Literal(name.as_string())))[0][0] is None:
        return {}
    query = load_statement(PACKAGE, "requests").format(loads=name, pipeline=sql.Literal(pipeline))
    return {(str(row[0]), str(row[1])): _request(*row[2:]) for row in server.session.rows(query)}


def _request(
    since: str | None,
    wanted: bool,
    waits: bool,
    horizon: datetime | None,
    snapshot: str | None,
    low: int | None,
    declared: str | None,
    dump: Any,
) -> Request:
    if declared is None:
        return Request(since, wanted)
    hold = Hold(horizon, snapshot, low, waits)
    return Request(since, wanted, declared, hold, None if dump is None else Dump.of(dump))


def with_requests(stream: str, loads: Sequence[Load], requests: Requests) -> tuple[Load, ...]:
    """The loads of a stream, as they were asked for."""
    declared = declaration_of(loads)
    return tuple(_requested(each, requests.get((stream, each.name)), declared) for each in loads)


def _requested(load: Load, request: Request | None, declared: str) -> Load:
    if request is None:
        return load
    identity = digest({"identity": load.identity, "asked": request.since}) if request.since else load.identity
    # Files are void with another declaration: documents of older triggers could come after them.
    holds = request.declared == declared
    return replace(
        load,
        identity=identity,
        wanted=request.wanted,
        dump=request.dump if holds else None,
        hold=request.hold if holds else None,
    )


def declaration_of(loads: Sequence[Load]) -> str:
    """A hash of all that a stream loads, before requests."""
    return digest({each.name: [each.identity, each.fields] for each in loads})


def choose_loads(
    loads: Mapping[str, Sequence[Load]], default_schema: str, tables: Sequence[str], streams: Sequence[str] = ()
) -> dict[str, list[Load]]:
    """The loads of some tables, or of all, by stream; InputError where there is none."""
    chosen = {stream: found for stream, found in loads.items() if not streams or stream in streams}
    known = {str(each.table) for found in chosen.values() for each in found}
    if not known:
        raise InputError(
            f"stream {', '.join(streams)} does not load its tables"
            if streams
            else "no stream of the pipeline loads its tables",
            safe=UNTOUCHED,
            next_step="remove `first_load: false` from the stream",
        )
    wanted = set()
    for text in tables:
        try:
            name = str(TableName.read(text, default_schema))
        except ValueError as error:
            raise InputError(str(error), safe=UNTOUCHED, next_step="correct --table") from None
        if name not in known:
            raise InputError(
                f"no stream is fed by a table {name}; {suggest(name, known, 'tables')}",
                safe=UNTOUCHED,
                next_step="correct --table",
            )
        wanted.add(name)
    picked = {
        stream: [each for each in found if not wanted or str(each.table) in wanted] for stream, found in chosen.items()
    }
    return {stream: found for stream, found in picked.items() if found}


def start_loads(server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]]) -> None:
    """Ask for the loads of these tables, in one transaction."""
    _ask(server, pipeline, loads, "the load cannot be started", sql.SQL("clock_timestamp()"), wanted=True)


def drop_loads(server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]]) -> None:
    """Give up these loads: what has been loaded stays."""
    _ask(server, pipeline, loads, "the load cannot be dropped", sql.SQL("NULL"), wanted=False)


def clear_loads(server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]]) -> None:
    """Void what these tables have said, and load nothing."""
    _ask(server, pipeline, loads, "the load cannot be cleared", sql.SQL("clock_timestamp()"), wanted=False)


def _ask(
    server: Server,
    pipeline: str,
    loads: Mapping[str, Sequence[Load]],
    failed: str,
    since: sql.SQL,
    *,
    wanted: bool,
) -> None:
    with explained(server.writing.target.where, failed), server.writing.transaction() as transaction:
        require_applied(transaction, server, pipeline, loads)
        for stream, each in each_of(loads):
            statement = load_statement(PACKAGE, "ask").format(
                loads=sql.Identifier(server.options.outbox_schema, "loads"),
                named=sql.SQL(", ").join(map(sql.Literal, (pipeline, stream, each.name))),
                since=since,
                wanted=sql.Literal(wanted),
            )
            transaction.execute(statement)


def each_of(loads: Mapping[str, Sequence[Load]]) -> list[tuple[str, Load]]:
    """(stream, load) of each."""
    return [(stream, each) for stream, found in loads.items() for each in found]


def require_applied(
    transaction: Connection, server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]]
) -> None:
    """StreamRefused unless the pipeline has applied the triggers of these tables, and the outbox keeps requests."""
    tables = sorted({str(each.table) for _, each in each_of(loads)})
    schema = server.options.outbox_schema
    count = sql.SQL("SELECT count(*), to_regclass({})::text FROM {} WHERE pipeline = {} AND relation = ANY ({})")
    row = transaction.execute(
        count.format(
            sql.Literal(sql.Identifier(schema, "loads").as_string()),
            sql.Identifier(schema, "triggers"),
            sql.Literal(pipeline),
            sql.Literal(tables),
        )
    ).fetchone()
    if row is None or row[0] != len(tables) or row[1] is None:
        raise StreamRefused(
            f"the triggers of {', '.join(tables)} have not all been applied by this pipeline",
            safe=UNTOUCHED,
            next_step="run `penstock triggers apply FILE` first",
        )
