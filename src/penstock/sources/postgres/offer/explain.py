"""What holds for a postgres stream, what does not, and what would be better, in words."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import quote
from penstock.links.postgres.types import without_modifier
from penstock.ports import Remark
from penstock.sources.postgres.catalog import Table, describe
from penstock.sources.postgres.content import TableContent, names
from penstock.sources.postgres.horizon.proofs import Proof, prove
from penstock.sources.postgres.horizon.watching import span
from penstock.sources.postgres.offer.proposals import SMALL, precision
from penstock.sources.postgres.options import Horizon
from penstock.sources.postgres.relations import Relation, relations
from penstock.sources.postgres.shape import look

#: names that a remark lists
SHOWN = 3


def remarks(session: Session, stream: str, content: TableContent, horizon: Horizon) -> list[Remark]:
    """Asks the catalog, and reads no row."""
    table = describe(session, content.table, (), stream=stream)
    found = relations(session, content.table.schema, content.table.name)
    relation = found[0] if found else None
    if content.mode == "keyset":
        proof = prove(session, stream, content)
        said = [
            *_keyset(content, table, proof, horizon),
            *_late(session, content, proof, horizon),
            *_partitions(session, stream, content),
        ]
    else:
        said = list(_refresh(relation))
    if content.row_security == "accept" and table and table.row_security:
        said.append(Remark("gap", f"rows that row-level security hides from user {session.user} are not delivered"))
    return said


def _keyset(content: TableContent, table: Table | None, proof: Proof, horizon: Horizon) -> Iterator[Remark]:
    cursor = content.key[0].column
    yield Remark("guarantee", "every row that is visible in the stream's order is delivered exactly once")
    timed = without_modifier(content.key[0].type).startswith(("timestamp", "date"))
    if proof.keeper:
        yield Remark("guarantee", f"updates are seen: the trigger {proof.keeper} sets {cursor} with each")
    elif timed:
        yield Remark("gap", "an update that leaves the cursor as it is is not seen")
        if without_modifier(content.key[0].type) != "timestamp with time zone" or horizon.method == "off":
            yield Remark("advice", "a trigger BEFORE UPDATE that sets the cursor to now() would see to it")
    else:
        yield Remark("gap", "an update is not seen unless it gives the row a higher cursor")
    yield Remark("gap", "deletes are not seen: the last version of a row stays")
    digits = precision(content.key[0].type)
    if digits is not None:
        what = f"{cursor} has only {digits} digits below the second: a second change within that time is not seen"
        yield Remark("gap", what)
    if content.nulls == "skip" and (column := table.column(cursor) if table else None) and not column.not_null:
        yield Remark("gap", f"rows whose {cursor} is NULL are not delivered (`nulls: skip`)")
    if table and not _indexed(table, names(content.key)):
        concurrently = "" if table.kind == "p" else " CONCURRENTLY"
        at = content.table.quoted
        make = f"CREATE INDEX{concurrently} ON {at} ({', '.join(map(quote, names(content.key)))});"
        yield Remark("advice", f"every slice sorts the table; an index would spare that: {make}")


def _late(session: Session, content: TableContent, proof: Proof, horizon: Horizon) -> Iterator[Remark]:
    """What becomes of rows whose transaction commits late."""
    if horizon.method == "off":
        yield Remark("gap", "a row whose transaction commits late, below the mark, is lost (`horizon: {method: off}`)")
        yield from _ties(content)
        return
    cursor = content.key[0].column
    if proof.proven:
        kept = "its trigger" if proof.method == "activity" else "its sequence"
        yield Remark("guarantee", f"a row that commits late is not lost: {kept} proves how {cursor} is kept")
    lag = f", and {cursor} is {span(horizon.lag)} old (`lag`)" if horizon.lag and not proof.proven else ""
    if proof.assumptions:
        assumed = "; that ".join(proof.assumptions)
        yield Remark("gap", f"a row that commits late is not lost, provided that {assumed}{lag}")
        yield from _ties(content)
    if proof.would_raise:
        yield Remark("advice", f"so that this is proven: {proof.would_raise}")
    if proof.method == "activity" and not proof.sees_all:
        grant = f"GRANT pg_read_all_stats TO {quote(session.user)};"
        yield Remark("advice", f"so that the server shows since when others are at work: {grant}")


def _partitions(session: Session, stream: str, content: TableContent) -> Iterator[Remark]:
    """What becomes of partitions that are attached later with rows from below the mark."""
    shape = look(session, content.table, stream=stream)
    if shape.kind != "p":
        return
    if not shape.told_apart and shape.leaves:
        why = "row-level security applies" if shape.row_security else f"user {session.user} may read columns alone"
        yield Remark(
            "gap",
            f"a partition that is attached with rows from below the mark is not noticed: {why} on {content.table}",
        )
        return
    hidden = [str(leaf.name) for leaf in shape.leaves if not leaf.may_select]
    if hidden:
        some = ", ".join(hidden[:SHOWN]) + (f" and {len(hidden) - SHOWN} more" if len(hidden) > SHOWN else "")
        yield Remark(
            "advice",
            f"user {session.user} may not read partitions by their own names ({some}): one that is attached with rows "
            "from below the mark stops the stream, or its rows are left out with `hidden_partitions: skip`. Grant "
            "SELECT on each, and by ALTER DEFAULT PRIVILEGES on those to come",
        )


def _ties(content: TableContent) -> Iterator[Remark]:
    """What becomes of rows that take a cursor value which was delivered already."""
    cursor, *tiebreaker = names(content.key)
    if tiebreaker:
        yield Remark(
            "gap",
            f"a row that commits later with the {cursor} of the mark and a lower {', '.join(tiebreaker)} is missed; "
            "each run counts such rows at its mark and warns of them",
        )


def _indexed(table: Table, key: tuple[str, ...]) -> bool:
    return any(i.columns[: len(key)] == key and (i.ascending or i.descending) for i in table.indexes)


def _refresh(relation: Relation | None) -> Iterator[Remark]:
    yield Remark("guarantee", "every run shows the table as it was at one moment: updates and deletes are seen")
    if relation and (relation.bytes or 0) > SMALL:
        yield Remark("advice", "every run reads the whole table; with a `cursor` it would read only what changed")
