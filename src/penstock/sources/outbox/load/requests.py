"""Requests to load a table again: they change since when the table counts as watched, and so its load's identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError, StreamRefused
from penstock.links.postgres.literals import TableName
from penstock.sources.outbox.failures import explained
from penstock.sources.outbox.load.declared import Load
from penstock.sources.outbox.server import Server


def choose_loads(
    loads: Mapping[str, Sequence[Load]], default_schema: str, tables: Sequence[str]
) -> dict[str, list[Load]]:
    """The loads of some tables, or of all, by stream; InputError where there is none."""
    known = {str(each.table) for found in loads.values() for each in found}
    if not known:
        raise InputError(
            "no stream of the pipeline loads its tables",
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
    chosen = {
        stream: [each for each in found if not wanted or str(each.table) in wanted] for stream, found in loads.items()
    }
    return {stream: found for stream, found in chosen.items() if found}


def request_loads(server: Server, pipeline: str, loads: Mapping[str, Sequence[Load]]) -> None:
    """Ask for the loads of these tables, in one transaction."""
    tables = sorted({str(each.table) for found in loads.values() for each in found})
    update = sql.SQL("UPDATE {} SET applied_at = clock_timestamp() WHERE pipeline = {} AND relation = ANY ({})")
    name = sql.Identifier(server.options.outbox_schema, "triggers")
    with (
        explained(server.writing.target.where, "the load cannot be started"),
        server.writing.transaction() as transaction,
    ):
        done = transaction.execute(update.format(name, sql.Literal(pipeline), sql.Literal(tables))).rowcount
        if done != len(tables):
            raise StreamRefused(
                f"the triggers of {', '.join(tables)} have not all been applied by this pipeline",
                safe=UNTOUCHED,
                next_step="run `penstock triggers apply FILE` first",
            )
