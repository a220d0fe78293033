"""Loads from the files of a dump: the stream begins to wait, then the files are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.errors import UNTOUCHED, InputError
from penstock.links.postgres.literals import load_statement
from penstock.sources.outbox.failures import explained
from penstock.sources.outbox.load.declared import Load
from penstock.sources.outbox.load.dump_files import make_dump, too_old
from penstock.sources.outbox.load.requests import PACKAGE, Request, each_of, read_requests, require_applied
from penstock.sources.outbox.server import Server

FAILED = "the load cannot be started"


def hold_streams(
    server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]], declared: Mapping[str, str]
) -> datetime:
    """Let streams wait for the files of these loads; the time after which a dump may be begun.

    The time is taken after the request was committed: a run that does not know of the request took its snapshot
    before, so all that it reads is in a dump that is begun later.
    """
    schema = server.options.outbox_schema
    names = {name: sql.Identifier(schema, name) for name in ("loads", "consumers", "floors")}
    with explained(server.writing.target.where, FAILED):
        with server.writing.transaction() as transaction:
            require_applied(transaction, server, pipeline, loads)
            for stream, each in each_of(loads):
                statement = load_statement(PACKAGE, "hold").format(
                    loads=names["loads"],
                    named=sql.SQL(", ").join(map(sql.Literal, (pipeline, stream, each.name))),
                    declared=sql.Literal(declared[stream]),
                )
                transaction.execute(statement)
        with server.writing.transaction() as transaction:
            # One at a time: a later time has a later snapshot.
            transaction.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(names["loads"]))
            transaction.execute(load_statement(PACKAGE, "horizon").format(**names, pipeline=sql.Literal(pipeline)))
            query = sql.SQL("SELECT horizon FROM {} WHERE pipeline = {} AND waits")
            rows = transaction.execute(query.format(names["loads"], sql.Literal(pipeline))).fetchall()
    horizons: list[datetime] = [row[0] for row in rows]
    return max(horizons)


def load_from(
    server: Server,
    pipeline: str,
    loads: Mapping[str, Sequence[Load]],
    declared: Mapping[str, str],
    paths: Sequence[Path],
    made_at: datetime,
    limit: int | None,
) -> None:
    """Load files in place of a table, for which the streams wait; InputError for what would leave a gap."""
    chosen, asked = each_of(loads), read_requests(server, pipeline)
    tables = sorted({str(each.table) for _, each in chosen})
    if len(tables) > 1:
        raise InputError(
            f"--from has the rows of one table, and {', '.join(tables)} are chosen",
            safe=UNTOUCHED,
            next_step="name one with --table",
        )
    horizon = max(_horizon(stream, each, asked.get((stream, each.name)), declared[stream]) for stream, each in chosen)
    if made_at <= horizon:
        raise too_old(f"the dump was begun at {made_at.isoformat(sep=' ')}", horizon)
    dump = make_dump(paths, [each for _, each in chosen], horizon, limit)
    update = sql.SQL(
        "UPDATE {} SET since = clock_timestamp(), wanted = true, waits = false, dump = {} "
        "WHERE pipeline = {} AND stream = {} AND load = {} AND horizon IS NOT NULL"
    )
    name = sql.Identifier(server.options.outbox_schema, "loads")
    with explained(server.writing.target.where, FAILED), server.writing.transaction() as transaction:
        for stream, each in chosen:
            named = map(sql.Literal, (pipeline, stream, each.name))
            transaction.execute(update.format(name, sql.Literal(Jsonb(dump.document())), *named))


def _horizon(stream: str, load: Load, request: Request | None, declared: str) -> datetime:
    """Since when a stream waits for the files of a load."""
    hold = "`penstock loads start FILE --await-files`"
    if request is None or request.hold is None or request.hold.horizon is None:
        raise InputError(
            f"stream {stream} does not wait for files of {load.name}: changes made between a dump and what the stream "
            "has read would be missing",
            safe=UNTOUCHED,
            next_step=f"run {hold}, then make the dump, then name its files",
        )
    if request.declared != declared:
        raise InputError(
            f"the tables of stream {stream}, or their triggers, have changed since it began to wait",
            safe=UNTOUCHED,
            next_step=f"run {hold} again, then make the dump, then name its files",
        )
    return request.hold.horizon
