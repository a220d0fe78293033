"""Facts about an outbox for people: its size, its consumers, and what keeps documents from being deleted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from psycopg import sql

from penstock.links.postgres.literals import load_statement, to_text
from penstock.sources.outbox.server import Server

PACKAGE = "penstock.sources.outbox"
#: documents that are counted for each consumer
_COUNTED_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Consumer:
    """A registered reader of a stream."""

    pipeline: str
    stream: str
    #: of its last slice
    number: int
    #: every document up to this id has been read
    low: int
    #: documents after `low`; at most 100,000 are counted
    behind: int
    #: since the registration moved
    seconds: float


@dataclass(frozen=True, slots=True)
class OutboxFacts:
    """An outbox at one time."""

    #: by statistics
    rows: int
    #: with its index
    bytes: int
    #: None: it is empty
    oldest_seconds: float | None
    consumers: tuple[Consumer, ...]
    #: streams with documents that nobody has registered for
    unread: tuple[str, ...]
    #: the transaction that has been open longest of those that wrote; None: there is none
    blocker: str | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def read_facts(server: Server) -> OutboxFacts:
    """What the outbox is like now."""
    schema = server.options.outbox_schema
    outbox, consumers = sql.Identifier(schema, "outbox"), sql.Identifier(schema, "consumers")
    query = load_statement(PACKAGE, "facts").format(outbox=outbox, name=sql.Literal(to_text(outbox)))
    [(rows, bytes_, oldest)] = server.session.rows(query)
    listed = load_statement(PACKAGE, "consumers").format(
        outbox=outbox, consumers=consumers, most=sql.Literal(_COUNTED_ROWS)
    )
    found = tuple(Consumer(*row) for row in server.session.rows(listed))
    streams = sql.SQL("SELECT DISTINCT stream FROM {} EXCEPT SELECT stream FROM {} ORDER BY 1")
    unread = tuple(str(name) for (name,) in server.session.rows(streams.format(outbox, consumers)))
    blocker = server.find_blocker()
    text = f"{blocker[1]}, open for {blocker[0]:,.0f} s" if blocker else None
    return OutboxFacts(int(rows), int(bytes_), oldest, found, unread, text)
