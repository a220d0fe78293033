"""Explains a postgres stream: its guarantees, its gaps, and advice."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from penstock.links.postgres.literals import quote
from penstock.links.postgres.tables import Table
from penstock.links.postgres.types import without_modifier
from penstock.ports import Remark
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon.activity import format_duration
from penstock.sources.postgres.horizon.proof import Proof, prove
from penstock.sources.postgres.proposals import SMALL_TABLE_BYTES, precision
from penstock.sources.postgres.stream import TableStream
from penstock.sources.postgres.validate import create_index

#: names that a remark lists
MAX_LISTED_NAMES = 3


def explain(stream: TableStream) -> list[Remark]:
    """Asks the catalog, and reads no row."""
    content, user = stream.content, stream.session.user
    table = stream.describe(storage=True, statistics=True)
    if content.mode == "keyset":
        proof = prove(stream)
        remarks = [
            *_explain_keyset(stream, table, proof),
            *_explain_late_commits(stream, proof),
            *(_explain_partitions(table, user) if table else ()),
        ]
    else:
        remarks = list(_explain_refresh(table))
    if content.row_security == "accept" and table and table.row_security:
        remarks.append(Remark("gap", f"rows that row-level security hides from user {user} are not delivered"))
    return remarks


def _explain_keyset(stream: TableStream, table: Table | None, proof: Proof) -> Iterator[Remark]:
    content = stream.content
    cursor = content.key[0].column
    yield Remark("guarantee", "every row that is visible in the stream's order is delivered exactly once")
    timed = without_modifier(content.key[0].type).startswith(("timestamp", "date"))
    if proof.stamping_trigger:
        what = f"updates are seen: the trigger {proof.stamping_trigger} sets {cursor} with each"
        yield Remark("guarantee", what)
    elif timed:
        yield Remark("gap", "an update that does not change the cursor is not seen")
        if without_modifier(content.key[0].type) != "timestamp with time zone" or stream.horizon.method == "off":
            yield Remark("advice", "a trigger BEFORE UPDATE that sets the cursor to now() prevents that")
    else:
        yield Remark("gap", "an update is not seen unless it gives the row a higher cursor")
    if stream.options.find_deletes == "compare":
        rows = stream.options.find_deletes_rows
        how = f"{rows} rows of the sink in each run" if rows else "all rows in each run"
        yield Remark("guarantee", f"deletes are found by comparing keys with the sink: {how}")
    else:
        yield Remark("gap", "deletes are not seen: the last version of a row stays")
    digits = precision(content.key[0].type)
    if digits is not None:
        what = f"{cursor} has only {digits} fractional digits: a second change within the same time is not seen"
        yield Remark("gap", what)
    if content.nulls == "skip" and (column := table.column(cursor) if table else None) and not column.not_null:
        yield Remark("gap", f"rows whose {cursor} is NULL are not delivered (`nulls: skip`)")
    if table and not table.has_index_on(content.key_names):
        index = create_index(table, content.key_names)
        yield Remark("advice", f"every slice sorts the table; an index would avoid that: {index}")


def _explain_late_commits(stream: TableStream, proof: Proof) -> Iterator[Remark]:
    """Say what happens to rows whose transaction commits late."""
    content, horizon = stream.content, stream.horizon
    if horizon.method == "off":
        yield Remark("gap", "a row whose transaction commits late, below the mark, is lost (`horizon: {method: off}`)")
        yield from _explain_ties(content)
        return
    cursor = content.key[0].column
    if proof.proven:
        basis = "its trigger" if proof.method == "activity" else "its sequence"
        yield Remark("guarantee", f"a row that commits late is not lost: {basis} proves how {cursor} is set")
    lag = f", and {cursor} is {format_duration(horizon.lag)} old (`lag`)" if horizon.lag and not proof.proven else ""
    if proof.assumptions:
        assumed = "; that ".join(proof.assumptions)
        yield Remark("gap", f"a row that commits late is not lost, provided that {assumed}{lag}")
        yield from _explain_ties(content)
    if proof.remedy:
        yield Remark("advice", f"so that this is proven: {proof.remedy}")
    sees_all = sql.SQL("SELECT pg_has_role('pg_read_all_stats', 'USAGE')")
    if proof.method == "activity" and not stream.rows(sees_all)[0][0]:
        grant = f"GRANT pg_read_all_stats TO {quote(stream.session.user)};"
        yield Remark("advice", f"so that the server shows when other transactions started: {grant}")


def _explain_partitions(table: Table, user: str) -> Iterator[Remark]:
    """Say what happens to partitions that are attached later with rows below the mark."""
    if table.kind != "p":
        return
    if not table.shows_partitions and table.partitions:
        why = "row-level security applies" if table.row_security else f"user {user} may read only columns"
        yield Remark(
            "gap", f"a partition that is attached with rows below the mark is not noticed: {why} on {table.name}"
        )
        return
    hidden = [str(partition.name) for partition in table.partitions if not partition.may_select]
    if hidden:
        more = len(hidden) - MAX_LISTED_NAMES
        some = ", ".join(hidden[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
        yield Remark(
            "advice",
            f"user {user} may not read partitions directly ({some}): one that is attached with rows below the mark "
            "stops the stream, or its rows are left out with `hidden_partitions: skip`. Grant SELECT on each, and on "
            "future ones by ALTER DEFAULT PRIVILEGES",
        )


def _explain_ties(content: TableContent) -> Iterator[Remark]:
    """Say what happens to rows that get a cursor value which was delivered already."""
    cursor, *tiebreaker = content.key_names
    if tiebreaker:
        yield Remark(
            "gap",
            f"a row that commits later with the {cursor} of the mark and a lower {', '.join(tiebreaker)} is missed; "
            "each run counts such rows at its mark and warns of them",
        )


def _explain_refresh(table: Table | None) -> Iterator[Remark]:
    yield Remark("guarantee", "every run shows the table as it was at one time: updates and deletes are seen")
    if table and table.statistics and (table.statistics.bytes or 0) > SMALL_TABLE_BYTES:
        yield Remark("advice", "every run reads the whole table; with a `cursor` it would read only what changed")
