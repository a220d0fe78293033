"""The first load: what exists up to a horizon H0, in parallel, by ranges of a key or by blocks of the table.

H0 is taken before the load begins and stays the same until its end, however often it is resumed; every part leaves out
what lies above it, and from there on the keyset reads. A partition that appears later gets a load of its own, up to
where the stream then is.
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
from penstock.ports import Budget, Planned, Remaining
from penstock.sources.postgres import keyset, remaining, spread
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.load import block_ranges, key_ranges
from penstock.sources.postgres.load.pieces import Batch, Stream
from penstock.sources.postgres.load.ways import Way, by_keys, way
from penstock.sources.postgres.marks import KeysetMark, LoadMark, bound, read
from penstock.sources.postgres.plan import parts_for
from penstock.sources.postgres.shape import Leaf, Shape, look
from penstock.sources.postgres.statements import matched


def next_slice(stream: Stream, after: Mark | None, ceiling: Document, budget: Budget) -> Planned | None:
    """The next slice of a keyset stream, of a load or along its cursor; None: nothing new."""
    planned = _next_slice(stream, after, ceiling, budget)
    if planned is None or planned.rows == 0 or stream.content.where is None:
        return planned
    # Of the rows on the way, nobody knows how many `where` lets through.
    return replace(planned, rows=None, exact=False, plan={**planned.plan, "rows": None})


def _next_slice(stream: Stream, after: Mark | None, ceiling: Document, budget: Budget) -> Planned | None:
    mark = read(after) if after else None
    if isinstance(mark, LoadMark):
        return _onward(stream, mark, look(stream.session, stream.content.table, stream=stream.name), budget)
    at = keyset.read(after, stream=stream.name)
    shape = look(stream.session, stream.content.table, stream=stream.name, known=at.leaves if at else ())
    goal = _goal(stream, ceiling, _leaves(shape))
    if budget.look and goal.key and not (at and at.key):
        return Planned(upto=goal.mark())
    load = _late(stream, at, shape) if at and at.key else _first(stream, goal, shape)
    if load:
        return _onward(stream, load, shape, budget)
    start, count = at.key if at else None, parts_for(budget.workers, stream.connections)
    found = keyset.next_slice(stream.session, stream.name, stream.content, goal, start, budget, count)
    if found:
        return found
    wait = horizons.next_mark_without_rows(after, ceiling, stream.content, stream.session.timeline)
    return Planned(upto=wait, plan={"cuts": [], "rows": 0}, rows=0, exact=True) if wait else None


def check(stream: Stream) -> None:
    """StreamRefused if the first load cannot go the way that the user wishes for."""
    if stream.first_load in ("keys", "blocks"):
        shape = look(stream.session, stream.content.table, stream=stream.name)
        way(stream, shape)


def parts(stream: Stream, slice_: Slice) -> list[Part]:
    """The parts of a slice of a keyset stream, as it was planned."""
    plan = parse(slice_.plan)
    if "load" not in plan:
        return keyset.parts(slice_, plan)
    batch = Batch.of(slice_, plan)
    by_blocks = batch.start.by == "blocks"
    found = block_ranges.parts(stream, batch) if by_blocks else key_ranges.parts(stream, batch)
    if found is None:
        raise keyset.uncovered(slice_)
    return found


def left(stream: Stream, mark: LoadMark, ceiling: Document) -> Remaining:
    """What a run still has before it in the middle of a load: the rest of it, and what has come above H0 since."""
    shape = look(stream.session, stream.content.table, stream=stream.name)
    rows = block_ranges.left(stream, mark, shape) if mark.by == "blocks" else key_ranges.left(stream, mark, shape)
    if stream.content.where is not None:
        all_, some = (
            spread.expected(stream.session, stream.name, stream.content, where)
            for where in (None, matched(stream.content))
        )
        rows = round(rows * min(1.0, some / max(1, all_)))
    top, start = horizons.key(ceiling), mark.then.key
    if top is None or top == start:
        return Remaining(rows)
    beyond = remaining.of_range(stream.session, stream.name, stream.content, Range(start, top)).rows
    return Remaining(None if beyond is None else rows + beyond)


def _onward(stream: Stream, load: LoadMark, shape: Shape, budget: Budget) -> Planned:
    if budget.look:
        return Planned(upto=load.then.mark())
    if load.by == "blocks":
        return block_ranges.next_slice(stream, load, shape, budget)
    return key_ranges.next_slice(stream, load, shape, budget)


def _goal(stream: Stream, ceiling: Document, leaves: tuple[str, ...]) -> KeysetMark:
    """Where a run leads that reads all it may."""
    content, proof = stream.content, ceiling.get("proof")
    return KeysetMark(
        horizons.key(ceiling),
        content.key,
        content.unique,
        stream.session.timeline,
        proof if isinstance(proof, Mapping) else None,
        leaves,
    )


def _leaves(shape: Shape) -> tuple[str, ...]:
    """The partitions that the next mark speaks of: those of the mark before, and all that are there now."""
    if not shape.told_apart:
        return ()
    here = [leaf.oid for leaf in shape.leaves]
    return tuple(sorted({*shape.known, *here}, key=int))


def _first(stream: Stream, goal: KeysetMark, shape: Shape) -> LoadMark | None:
    """The load with which a stream begins; None: it goes along the cursor."""
    if goal.key is None:
        return None
    chosen = way(stream, shape)
    if chosen.by == "cursor":
        return None
    if chosen.by == "blocks":
        return LoadMark("blocks", (), None, goal, block_ranges.terms(shape))
    terms: Document = {"done": []} if shape.kind == "p" else {}
    return LoadMark("keys", chosen.columns, None, goal, terms)


def _late(stream: Stream, at: KeysetMark, shape: Shape) -> LoadMark | None:
    """The load of partitions that have appeared since, with rows that the mark has passed already.

    StreamRefused if one of them has such rows and may not be read by its own name.
    """
    if not at.leaves or not at.key or not shape.told_apart:
        return None
    passed = [leaf for leaf in _new(at, shape) if _passed(stream, leaf, at.key)]
    hidden = [leaf for leaf in passed if not leaf.may_select]
    if hidden and not stream.skips_hidden:
        raise _hidden(stream, hidden[0])
    late = [leaf.oid for leaf in passed if leaf.may_select]
    if not late:
        return None
    chosen = by_keys(stream, shape)
    columns = chosen.columns if isinstance(chosen, Way) and chosen.columns else stream.content.key
    then = replace(at, leaves=_leaves(shape))
    return LoadMark("keys", columns, None, then, {"done": [oid for oid in then.leaves if oid not in late]})


def skipped(stream: Stream, at: KeysetMark) -> list[TableName]:
    """New partitions whose rows below the mark are left out, because they may not be read."""
    shape = look(stream.session, stream.content.table, stream=stream.name, known=at.leaves)
    if not at.leaves or not at.key or not shape.told_apart:
        return []
    return [leaf.name for leaf in _new(at, shape) if not leaf.may_select and _passed(stream, leaf, at.key)]


def _new(at: KeysetMark, shape: Shape) -> list[Leaf]:
    return [leaf for leaf in shape.leaves if leaf.oid not in at.leaves and leaf.blocks]


def _hidden(stream: Stream, leaf: Leaf) -> StreamRefused:
    grant = f"GRANT SELECT ON {leaf.name.quoted} TO {quote(stream.session.user)};"
    return StreamRefused(
        f"the partition {leaf.name} was attached to {stream.content.table} with rows from below the mark, and user "
        f"{stream.session.user} may not read it by its own name, which loading them needs",
        next_step=f"{grant} or set `hidden_partitions: skip` on the stream to leave these rows out",
        stream=stream.name,
    )


def _passed(stream: Stream, leaf: Leaf, key: Key) -> bool:
    """Whether the first row of a partition lies at or below a key; one that may not be read shows it by its table."""
    columns = stream.content.key
    members = [sql.Identifier("t", column.column) for column in columns]
    conditions = [sql.SQL("{} IS NOT NULL").format(members[0])]
    if not leaf.may_select:
        # Its bounds are for the planner: without them it would look through all partitions.
        conditions.append(sql.SQL("t.tableoid = {}::oid").format(sql.Literal(leaf.oid)))
        conditions += [sql.SQL("({})").format(sql.SQL(leaf.bounds))] if leaf.bounds else []
    query = sql.SQL("SELECT {} <= {} FROM {} AS t WHERE {} ORDER BY {} LIMIT 1").format(
        row_of(members),
        row_of(bound(columns, key)),
        leaf.name.sql if leaf.may_select else stream.content.table.sql,
        sql.SQL(" AND ").join(conditions),
        sql.SQL(", ").join(members),
    )
    found = stream.session.rows(query, table=str(leaf.name), stream=stream.name)
    return bool(found and found[0][0])
