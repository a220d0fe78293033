"""Where a stream lands and what holds there, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from penstock.core.slices import Kind
from penstock.links.postgres.literals import TableName
from penstock.ports import Remark, StreamInfo
from penstock.sinks.postgres.merging import Rules
from penstock.sinks.postgres.options import StreamOptions


def remarks(
    table: str, stream: StreamInfo, rules: Rules, options: StreamOptions, ahead: Collection[str]
) -> Sequence[Remark]:
    """`ahead`: streams that this one's table refers to."""
    return [*_remarks(table, stream, rules, options), *_of_rows(options, ahead)]


def beside(
    table: TableName, stream: StreamInfo, rules: Rules, others: Sequence[tuple[str, str]], *, holds: bool
) -> Sequence[Remark]:
    """What is in the table besides the stream's rows: those of other pipelines, and those that it holds already."""
    if others:
        return [Remark("gap", f"{table} is filled by {', '.join('/'.join(each) for each in others)} too")]
    if not holds:
        return []
    becomes = "they stay, and those that come are added to them"
    if stream.kind is Kind.REFRESH:
        becomes = "the first full refresh deletes those it does not bring"
    elif rules.key:
        becomes = "they stay, and those with a key that comes are updated"
    return [Remark("gap", f"{table} holds rows already: {becomes}")]


def _of_rows(options: StreamOptions, ahead: Collection[str]) -> Iterator[Remark]:
    if options.bad_rows == "quarantine":
        yield Remark("gap", "a row that the table does not take is put aside; `penstock quarantine list` shows them")
    if ahead:
        yield Remark(
            "guarantee", f"begins when nothing is left of {', '.join(sorted(ahead))}: its table refers to them"
        )


def _remarks(table: str, stream: StreamInfo, rules: Rules, options: StreamOptions) -> Iterator[Remark]:
    by = f" by ({', '.join(rules.key)})" if rules.key else ""
    if stream.kind is Kind.REFRESH:
        yield Remark("guarantee", f"lands in {table}{by}: each refresh takes the place of the one before, at once")
    elif rules.key:
        yield Remark("guarantee", f"lands in {table}{by}: one row for each key, each slice in one transaction")
    else:
        yield Remark("guarantee", f"lands in {table}: each row is added once, each slice in one transaction")
        yield Remark("advice", "a row that changes is added again; with `key`, it takes the place of the one before")
    if rules.newer_than and not options.newer_than:
        yield Remark(
            "guarantee",
            f"of source rows that share the key, the one with the highest {rules.newer_than} (the cursor) stays",
        )
    if rules.key and not rules.newer_than and stream.kind is Kind.ROWS:
        yield Remark("gap", "if others write the table too, the last write stays; `newer_than` would refuse older rows")
    if rules.newer_than and options.deletes == "hard":
        yield Remark("gap", "a row that was deleted here comes back if an older version of it arrives later")
    if not options.triggers:
        yield Remark("gap", f"the triggers of {table} do not run for these rows; other writers wait for each slice")
