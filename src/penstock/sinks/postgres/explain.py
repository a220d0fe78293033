"""Explain where a stream lands and what holds there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.core.slices import Kind
from penstock.links.postgres.write_connection import Connection
from penstock.ports import Remark
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.target import describe, holds_more


def explain_stream(config: StreamConfig, parents: Collection[str]) -> Iterator[Remark]:
    """`parents` are the streams that this one's table refers to."""
    table, options, is_refresh = config.table, config.options, config.info.kind is Kind.REFRESH
    by = f" by ({', '.join(config.key)})" if config.key else ""
    if is_refresh:
        yield Remark("guarantee", f"lands in {table}{by}: each refresh replaces the one before, at once")
    elif config.key:
        yield Remark("guarantee", f"lands in {table}{by}: one row for each key, each slice in one transaction")
    else:
        yield Remark("guarantee", f"lands in {table}: each row is inserted once, each slice in one transaction")
        yield Remark("advice", "a row that changes is inserted again; with `key`, it replaces the one before")
    if config.newer_than and config.newer_than == config.info.version:
        yield Remark("guarantee", f"of two versions of a row, the one with the higher {config.newer_than} stays")
    elif config.newer_than and not options.newer_than:
        yield Remark(
            "guarantee",
            f"of source rows that share the key, the one with the highest {config.newer_than} (the cursor) stays",
        )
    if config.key and not config.newer_than and config.info.kind is Kind.ROWS:
        yield Remark("gap", "if others write the table too, the last write stays; `newer_than` would refuse older rows")
    if config.newer_than and options.deletes == "hard":
        yield Remark("gap", "a row that was deleted here comes back if an older version of it arrives later")
    if not options.triggers:
        yield Remark("gap", f"the triggers of {table} do not run for these rows; other writers wait for each slice")
    if options.bad_rows == "quarantine":
        yield Remark("gap", "a row that the table rejects is quarantined; `penstock quarantine list` shows them")
    if parents:
        yield Remark(
            "guarantee", f"begins when nothing is left of {', '.join(sorted(parents))}: its table refers to them"
        )


def explain_existing(connection: Connection, ledger: Ledger, config: StreamConfig) -> Iterator[Remark]:
    """The rows in the table that are not the stream's; `check` has refused those that prevent it."""
    name, table = config.info.name, config.table
    has_ledger = ledger.exists(connection)
    others = ledger.list_others(connection, name, table) if has_ledger else ()
    if others:
        yield Remark("gap", f"{table} is filled by {', '.join(others)} too")
        return
    if has_ledger and ledger.read(connection, name) is not None:
        return
    target = describe(connection, table)
    if target is None or not target.is_readable or not holds_more(connection, table, 0):
        return
    becomes = "they stay, and the stream's rows are inserted beside them"
    if config.info.kind is Kind.REFRESH:
        becomes = "the first full refresh deletes those it does not bring"
    elif config.key:
        becomes = "they stay, and those with a key of the stream are updated"
    yield Remark("gap", f"{table} already holds rows: {becomes}")
