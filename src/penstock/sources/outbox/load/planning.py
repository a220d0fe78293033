"""Plans slices of a first load: ranges of one table after the other, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.ranges import Key, Range, cut
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.links.postgres.key_walk import range_condition, walk_steps
from penstock.links.postgres.literals import quote, to_text
from penstock.links.postgres.tables import describe
from penstock.ports import Budget, Remark
from penstock.sources.outbox.feeds import needed_columns
from penstock.sources.outbox.functions import say_inserted
from penstock.sources.outbox.json_sql import as_text
from penstock.sources.outbox.load.declared import Clear, Load, compare
from penstock.sources.outbox.load.dumps import PIECE, Dump
from penstock.sources.outbox.load.states import COMPLETE, ENDED, LOADING, TRIAL, LoadState

#: bytes that are worth a part of their own
PART_BYTES = 4 << 20
PARTS_PER_WORKER = 2
#: ranges that one slice may have
MAX_PIECES = 64
#: rows that are counted where the statistics say nothing
COUNTED_ROWS = 100_000
#: the row variable of triggers, and the alias of a table that is loaded: a user's subquery uses it for nothing else
ROW = "NEW"
#: load slices of a stream; with the rows of one, its ids stay within 53 bits
MAX_SLICES = 1 << 21

Run = Callable[[sql.Composed], Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The next slice of a load."""

    states: tuple[LoadState, ...]
    #: for the slice
    plan: Document
    #: rows to expect
    rows: int


@dataclass
class _Slice:
    """A slice that is filled from table to table."""

    run: Run
    room: int
    step: int
    now: int
    pieces: list[Document] = field(default_factory=list)
    tables: list[Document] = field(default_factory=list)
    rows: int = 0

    @property
    def is_full(self) -> bool:
        return self.room <= 0 or len(self.pieces) >= MAX_PIECES

    def add(self, load: Load, state: LoadState) -> LoadState:
        """The load after the ranges that there is room for."""
        columns = state.columns
        if state.state != LOADING:
            columns = choose_columns(self.run, load) if load.dump is None else (PIECE,)
            rows, bytes_ = estimate_size(self.run, load)
            state = replace(state, state=LOADING, columns=columns, expected=rows, bytes=bytes_, began=self.now)
        pieces, rows, after = self._ranges(load, state) if load.dump is None else self._files(load.dump, state)
        if pieces:
            number = len(self.tables)
            self.tables.append(_table(self.run, load, columns))
            self.pieces += [{"table": number, **each} for each in pieces]
        self.rows += rows
        self.room -= rows
        state = replace(state, after=after, rows=state.rows + rows)
        if after is not None:
            return state
        ended = TRIAL if load.dump is not None and load.dump.limit is not None else COMPLETE
        return replace(state, state=ended, ended=self.now)

    def _files(self, dump: Dump, state: LoadState) -> tuple[Sequence[dict[str, Any]], int, Key | None]:
        """The next pieces of a dump, the rows in them, and how many are behind them; None: all."""
        first = end = int(state.after[0]) if state.after else 0
        rows = 0
        while end < len(dump.pieces) and end - first < MAX_PIECES and (end == first or rows < self.room):
            rows += dump.pieces[end]["rows"]
            end += 1
        pieces = [{"piece": dump.piece(number)} for number in range(first, end)]
        return pieces, rows, (str(end),) if end < len(dump.pieces) else None

    def _ranges(self, load: Load, state: LoadState) -> tuple[Sequence[dict[str, Any]], int, Key | None]:
        """The next ranges, the rows in them, and where they end; None: at the end of the table."""
        columns, after = state.columns, state.after
        if not columns:
            return [_piece(Range(None, None))], state.expected, None
        key = [sql.Identifier("t", name) for name in columns]
        cuts, rest = walk_steps(
            self.run,
            load.table.sql,
            key,
            whole=range_condition(key, types_of(load, columns), Range(after, None)),
            below=sql.SQL("true"),
            step=min(self.step, self.room),
            most=self.room,
        )
        rows = (cuts[-1].rows if cuts else 0) + rest
        if not rows:
            return [], 0, None
        upto = None if rows < self.room else cuts[-1].key
        ranges = cut(Range(after, upto), [each.key for each in cuts if each.key != upto])
        return [_piece(each) for each in ranges], rows, upto


def plan_load(
    run: Run, states: Sequence[LoadState], number: int, loads: Sequence[Load], budget: Budget, row_bytes: float
) -> LoadPlan | None:
    """Plan the next slice of the loads of a stream; None: all are complete. `number`: of load slices before it."""
    now, clears = compare(states, loads)
    if now == tuple(states) and all(each.state in ENDED for each in now):
        return None
    if number >= MAX_SLICES:
        raise StreamRefused(
            f"the loads of this stream have had {number:,} slices: there are no ids left for their documents",
            next_step="raise `slice_bytes`, and start again with `penstock state reset`",
        )
    most = max(1, int(budget.bytes / row_bytes))
    most = min(most, budget.rows) if budget.rows is not None else most
    parts = max(1, budget.workers) * PARTS_PER_WORKER
    step = max(1, int(PART_BYTES / row_bytes), -(-most // parts))
    [(clock,)] = run(sql.SQL("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").format())
    slice_, after = _Slice(run, most, step, int(clock)), []
    for load, state in zip(loads, now, strict=True):
        after.append(state if state.state in ENDED or slice_.is_full else slice_.add(load, state))
    plan: Document = {
        "number": number,
        "at": int(clock),
        "clears": [_clear(each) for each in clears],
        "tables": slice_.tables,
        "pieces": slice_.pieces,
    }
    return LoadPlan(tuple(after), {"load": plan}, slice_.rows + len(clears))


def choose_columns(run: Run, load: Load) -> tuple[str, ...]:
    """The columns of an index to read ranges by; (): the table is read in one range."""
    names = [part.column for part in load.parts]
    # The index of a table does not cover the rows of tables that inherit from it.
    table = None if load.fed.children else describe(run, load.table, names)
    if table is None:
        return ()
    usable = {name for name in names if (column := table.column(name)) and column.order == "built-in"}
    found = [tuple(takewhile(usable.__contains__, index.columns)) for index in table.indexes if index.ordered]
    return max(found, key=len, default=())


def estimate_rows(run: Run, load: Load) -> int:
    """Rows of a table by the statistics; where there are none, few are counted."""
    known = sql.SQL("SELECT sum(greatest(reltuples, 0))::bigint FROM pg_class WHERE oid = ANY ({}::regclass[])")
    [(rows,)] = run(known.format(sql.Literal(_relations(load))))
    if rows:
        return int(rows)
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS counted")
    [(rows,)] = run(query.format(load.table.sql, sql.Literal(COUNTED_ROWS)))
    return int(rows)


def estimate_size(run: Run, load: Load) -> tuple[int, int]:
    """Rows and bytes of what is to be loaded: those of a table on the server's disk, without indexes."""
    if load.dump is not None:
        return load.dump.rows, load.dump.bytes
    query = sql.SQL("SELECT coalesce(sum(pg_table_size(oid)), 0)::bigint FROM unnest({}::regclass[]) AS t (oid)")
    return estimate_rows(run, load), int(run(query.format(sql.Literal(_relations(load))))[0][0])


def _relations(load: Load) -> list[str]:
    return [to_text(each.sql) for each in (load.fed.name, *load.fed.partitions, *load.fed.children)]


def estimate_left(run: Run, load: Load, state: LoadState) -> int:
    """Rows of a table that are still to be loaded."""
    return max(0, (load.dump.rows if load.dump is not None else estimate_rows(run, load)) - state.rows)


def explain_loads(run: Run, loads: Sequence[Load]) -> list[Remark]:
    """What a first load reads, and what would make it better."""
    several = ", ".join(f"{each.name} (about {estimate_rows(run, each):,} rows)" for each in loads)
    said = [
        Remark(
            "guarantee",
            f"rows that exist already are loaded, after the changes so far and before those made meanwhile: {several}",
        )
    ]
    for load in loads:
        if not choose_columns(run, load):
            named = ", ".join(part.column for part in load.parts)
            said.append(
                Remark(
                    "advice",
                    f"{load.table} has no index that begins with {named}: its first load is one slice, read by one "
                    "worker, and begins again after a kill",
                )
            )
    return said


def types_of(load: Load, columns: Sequence[str]) -> list[str]:
    origins = {part.column: part.origin for part in load.parts}
    return [origins[name] for name in columns]


def check_readable(loads: Sequence[Load], user: str, stream: str) -> None:
    """StreamRefused if the role may not read a table that is to be loaded."""
    for load in loads:
        if not load.fed.readable:
            raise StreamRefused(
                f"user {user} may not read {load.table}, whose rows are to be loaded",
                safe=UNTOUCHED,
                next_step=f"GRANT SELECT ON {load.table.quoted} TO {quote(user)} (and USAGE on its schema); or set "
                "`first_load: false` on the stream to leave out the rows that exist already",
                stream=stream,
            )


def _table(run: Run, load: Load, columns: tuple[str, ...]) -> Document:
    """What a worker needs to read a table, also when the pipeline file has changed."""
    said = say_inserted(str(load.table), load.feed, ROW)
    return {
        "table": str(load.table),
        "oid": load.fed.oid,
        "document": to_text(as_text(said.document)),
        "condition": to_text(said.condition),
        "columns": list(columns),
        "types": types_of(load, columns) if load.dump is None else [],
        # Of a dump: the columns that are read, and their types.
        "read": [] if load.dump is None else _typed_columns(run, load),
    }


def _typed_columns(run: Run, load: Load) -> list[list[str]]:
    table = describe(run, load.table)
    if table is None:
        raise StreamRefused(f"there is no table {load.table}", next_step="`penstock triggers apply FILE` shows more")
    types = {column.name: column.type for column in table.columns}
    return [[name, types[name]] for name in needed_columns(load.feed)]


def _piece(range_: Range) -> dict[str, Any]:
    return {"after": _listed(range_.after), "upto": _listed(range_.upto)}


def _clear(clear: Clear) -> Document:
    table, names = clear
    return {"table": table, "fields": None if names is None else list(names)}


def _listed(key: Key | None) -> list[str] | None:
    return None if key is None else list(key)
