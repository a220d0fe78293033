"""The first load: reads the rows up to a horizon H0 in parallel, by ranges of a key or by blocks of the table.

H0 is taken before the load begins and stays the same until its end, even if the load is resumed. Every part leaves out
the rows above H0, which the keyset reads afterwards. A partition that appears later gets a load of its own, up to the
stream's current mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from psycopg import sql

from penstock.core.documents import Document, parse
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.core.slices import Part, Slice
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName, quote, row_of
from penstock.links.postgres.tables import Partition, Table
from penstock.ports import Budget, Planned, Remaining
from penstock.sources.postgres import keyset
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.listing import missing_table_error
from penstock.sources.postgres.load import block_ranges, key_ranges
from penstock.sources.postgres.load.method import LoadMethod, choose_method, try_keys
from penstock.sources.postgres.load.pieces import LoadSlice
from penstock.sources.postgres.marks import KeysetMark, LoadMark, read, require_keyset
from penstock.sources.postgres.remaining import estimate_range
from penstock.sources.postgres.stream import TableStream


def plan_slice(stream: TableStream, after: Mark | None, ceiling: Document, budget: Budget) -> Planned | None:
    """Plan the next slice of a keyset stream, of a load or along its cursor; None: there are no new rows."""
    planned = _plan_slice(stream, after, ceiling, budget)
    if planned is None or planned.rows == 0 or stream.content.where is None:
        return planned
    # The number of rows that meet `where` is unknown.
    return replace(planned, rows=None, exact=False, plan={**planned.plan, "rows": None})


def _plan_slice(stream: TableStream, after: Mark | None, ceiling: Document, budget: Budget) -> Planned | None:
    mark = read(after) if after else None
    if isinstance(mark, LoadMark):
        return _continue_load(stream, mark, _describe(stream), budget)
    at = require_keyset(after, stream=stream.name)
    table = _describe(stream, at)
    goal = _goal(stream, ceiling, table)
    if budget.look and goal.key and not (at and at.key):
        return Planned(upto=goal.mark())
    load = _load_new_partitions(stream, at, table) if at and at.key else _begin_load(stream, goal, table)
    if load:
        return _continue_load(stream, load, table, budget)
    planned = keyset.plan_slice(stream, goal, at.key if at else None, budget)
    if planned:
        return planned
    pending = horizons.next_mark_without_rows(stream, after, ceiling)
    return Planned(upto=pending, plan={"cuts": [], "rows": 0}, rows=0, exact=True) if pending else None


def check_method(stream: TableStream) -> None:
    """StreamRefused if the configured method of the first load is not possible."""
    if stream.options.first_load in ("keys", "blocks"):
        choose_method(stream, _describe(stream))


def make_parts(stream: TableStream, slice_: Slice) -> list[Part]:
    """The parts of a slice of a keyset stream, as it was planned."""
    plan = parse(slice_.plan)
    if "load" not in plan:
        return keyset.make_parts(slice_, plan)
    load = LoadSlice.of(slice_, plan)
    by_blocks = load.start.by == "blocks"
    parts = block_ranges.make_parts(stream, load) if by_blocks else key_ranges.make_parts(stream, load)
    if parts is None:
        raise keyset.uncovered_error(slice_)
    return parts


def estimate_remaining(stream: TableStream, mark: LoadMark, ceiling: Document) -> Remaining:
    """The rows that a run has left during a load: the rest of the load, and the new rows above H0."""
    estimate = block_ranges.estimate_rows if mark.by == "blocks" else key_ranges.estimate_rows
    rows = estimate(stream, mark, _describe(stream))
    if stream.content.where is not None:
        share = stream.expected_rows(stream.content.filter_sql) / max(1, stream.expected_rows())
        rows = round(rows * min(1.0, share))
    top, start = horizons.highest_key(ceiling), mark.then.key
    if top is None or top == start:
        return Remaining(rows)
    beyond = estimate_range(stream, Range(start, top)).rows
    return Remaining(None if beyond is None else rows + beyond)


def find_skipped_partitions(stream: TableStream, at: KeysetMark) -> list[TableName]:
    """New partitions whose rows below the mark are left out, because the role may not read them."""
    return [each.name for each in _passed_partitions(stream, at, _describe(stream, at)) if not each.may_select]


def _describe(stream: TableStream, at: KeysetMark | None = None) -> Table:
    table = stream.describe(storage=True, known=at.leaves if at else ())
    if table is None:
        raise missing_table_error(stream.session, stream.name, stream.content.table)
    return table


def _continue_load(stream: TableStream, load: LoadMark, table: Table, budget: Budget) -> Planned:
    if budget.look:
        return Planned(upto=load.then.mark())
    if load.by == "blocks":
        return block_ranges.plan_slice(stream, load, table, budget)
    return key_ranges.plan_slice(stream, load, table, budget)


def _goal(stream: TableStream, ceiling: Document, table: Table) -> KeysetMark:
    """The mark of a run that reads all it may."""
    content, proof = stream.content, ceiling.get("proof")
    return KeysetMark(
        horizons.highest_key(ceiling),
        content.key,
        content.unique,
        stream.session.server.timeline,
        proof if isinstance(proof, Mapping) else None,
        _covered_partitions(table),
    )


def _covered_partitions(table: Table) -> tuple[str, ...]:
    """The partitions that the next mark covers: those of the previous mark, and all current ones."""
    if not table.shows_partitions:
        return ()
    return tuple(sorted({*table.known, *(partition.oid for partition in table.partitions)}, key=int))


def _begin_load(stream: TableStream, goal: KeysetMark, table: Table) -> LoadMark | None:
    """The load with which a stream begins; None: it is read along the cursor."""
    if goal.key is None:
        return None
    method = choose_method(stream, table)
    if method.by == "cursor":
        return None
    if method.by == "blocks":
        return LoadMark("blocks", (), None, goal, block_ranges.load_terms(table))
    terms: Document = {"done": []} if table.kind == "p" else {}
    return LoadMark("keys", method.columns, None, goal, terms)


def _load_new_partitions(stream: TableStream, at: KeysetMark, table: Table) -> LoadMark | None:
    """The load of partitions that have appeared since, with rows that the mark has already passed.

    StreamRefused if the role may not read one of them directly.
    """
    passed = _passed_partitions(stream, at, table)
    hidden = [partition for partition in passed if not partition.may_select]
    if hidden and stream.options.hidden_partitions != "skip":
        raise _hidden_partition_error(stream, hidden[0])
    late = [partition.oid for partition in passed if partition.may_select]
    if not late:
        return None
    method = try_keys(stream, table)
    columns = method.columns if isinstance(method, LoadMethod) and method.columns else stream.content.key
    then = replace(at, leaves=_covered_partitions(table))
    return LoadMark("keys", columns, None, then, {"done": [oid for oid in then.leaves if oid not in late]})


def _passed_partitions(stream: TableStream, at: KeysetMark, table: Table) -> list[Partition]:
    """Partitions that the mark does not cover, with rows at or below its key."""
    if not at.leaves or not at.key or not table.shows_partitions:
        return []
    new = [each for each in table.partitions if each.oid not in at.leaves and each.blocks]
    return [each for each in new if _has_row_up_to(stream, each, at.key)]


def _hidden_partition_error(stream: TableStream, partition: Partition) -> StreamRefused:
    user = stream.session.user
    return StreamRefused(
        f"the partition {partition.name} was attached to {stream.content.table} with rows below the mark, and loading "
        f"them requires that user {user} may read it directly",
        next_step=f"GRANT SELECT ON {partition.name.quoted} TO {quote(user)}; or set `hidden_partitions: skip` on the "
        "stream to leave these rows out",
        stream=stream.name,
    )


def _has_row_up_to(stream: TableStream, partition: Partition, key: Key) -> bool:
    """Whether the first row of a partition lies at or below a key; asks the table if the partition is hidden."""
    content = stream.content
    conditions = [sql.SQL("{} IS NOT NULL").format(content.cursor_sql)]
    if not partition.may_select:
        # The bounds are for the planner: without them it would search all partitions.
        conditions.append(sql.SQL("t.tableoid = {}::oid").format(sql.Literal(partition.oid)))
        conditions += [sql.SQL("({})").format(sql.SQL(partition.bounds))] if partition.bounds else []
    query = sql.SQL("SELECT {} <= {} FROM {} AS t WHERE {} ORDER BY {} LIMIT 1").format(
        row_of(content.key_sql),
        row_of(content.literals(key)),
        partition.name.sql if partition.may_select else content.table.sql,
        sql.SQL(" AND ").join(conditions),
        content.ascending,
    )
    rows = stream.rows(query, partition.name)
    return bool(rows and rows[0][0])
