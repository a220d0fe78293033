"""Fold the ops of a slice onto copies of the entities that they concern. The meaning is that of `core.ops.fold`.

- A declared fan-out decides its fields, whatever came first. So at the end of a segment each entity takes the last
  values for its match, where there are any; otherwise a field is null if its match was written after it.
- A barrier (`clear`, a `query_op_set` of an undeclared table, a fan-out that sets what another matches on) cuts the
  slice into segments. It is applied as the reference does it: `_settled` repeats its function `_settle`.
- Where a fan-out sets what another matches on, documents of one entity are folded one by one, also with `_settled`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.ops import FanOut
from penstock.sinks.postgres.state.copies import EntityCopies
from penstock.sinks.postgres.state.documents import Documents
from penstock.sinks.postgres.state.expressions import after_pieces, commas, is_known, new_value, result, set_multi
from penstock.sinks.postgres.state.fields import Field


@dataclass(frozen=True, slots=True)
class Barrier:
    """An op that everything before it must be folded for."""

    seq: int
    #: clear or query_op_set
    what: str
    #: of `clear`: the number of a field; None: all entities
    field: int | None
    #: the number of a declared fan-out
    fan_out: int | None


@dataclass(kw_only=True)
class Fold(EntityCopies):
    """The fold of one slice."""

    documents: Documents
    #: ops that came before their entity
    early: int = 0

    def run(self) -> None:
        """Fold everything into `penstock_work`, `early_ops` excepted."""
        self.documents.prepare()
        barriers = self._list_barriers()
        self.in_steps = bool(barriers or self.entity.leading)
        seqs = [barrier.seq for barrier in barriers]
        self.documents.list_ops(seqs, one_by_one=bool(self.entity.leading))
        self._create_tables(seqs)
        self._load()
        rounds, spreading = self._list_steps()
        for seg in range(len(barriers) + 1):
            if seg in spreading:
                self._spread(
                    seg,
                    sql.SQL("x.seg = {} AND x.fan_out <> ALL ({}::integer[])").format(
                        sql.Literal(seg), sql.Literal(list(self.entity.leading))
                    ),
                )
            for number in rounds[seg]:
                self._fold_ops(seg, number)
            if seg in spreading or rounds[seg]:
                self._give_values(seg)
                self._execute("TRUNCATE penstock_spread")
            if seg < len(barriers):
                self._apply_barrier(seg, barriers[seg])

    # ------------------------------------------------------------ segments

    def _list_barriers(self) -> list[Barrier]:
        query = sql.SQL(
            "SELECT seq, what, field, fan_out FROM penstock_streams "
            "WHERE what = 'clear' OR fan_out IS NULL OR fan_out = ANY ({}::integer[]) ORDER BY seq"
        ).format(sql.Literal(list(self.entity.leading)))
        return [Barrier(*row) for row in self.connection.execute(query).fetchall()]

    def _create_tables(self, barriers: Sequence[int]) -> None:
        definitions = sql.SQL(", ").join(each.definition for each in self.entity.columns)
        self._run("work", columns=definitions)
        seg: sql.Composable = sql.SQL("0")
        if barriers:
            seg = sql.SQL("width_bucket(s.seq, {}::bigint[])").format(sql.Literal(list(barriers)))
        for number, fan_out in enumerate(self.entity.fan_outs):
            fields = self.entity.named(fan_out.match)
            joins = [
                sql.SQL(
                    "JOIN (SELECT DISTINCT seq, value FROM penstock_pieces WHERE inner_n = 0 AND field = {}) {c} "
                    "ON {c}.seq = s.seq"
                ).format(sql.Literal(each.number), c=sql.Identifier(f"c{each.number}"))
                for each in fields
            ]
            self._run(
                "fans",
                seg=seg,
                number=sql.Literal(number),
                match=commas(sql.Identifier(f"c{each.number}", "value") for each in fields),
                joins=sql.SQL(" ").join(joins),
                names=sql.Literal([each.name for each in self.entity.fields]),
                numbers=sql.Literal([each.number for each in self.entity.fields]),
            )
        self._execute("ANALYZE penstock_fans")

    def _list_steps(self) -> tuple[dict[int, list[int]], set[int]]:
        """The rounds of each segment, and the segments with fan-outs."""
        rounds: dict[int, list[int]] = defaultdict(list)
        for seg, number in self.connection.execute(
            "SELECT DISTINCT seg, round FROM penstock_heads ORDER BY seg, round"
        ).fetchall():
            rounds[seg].append(number)
        query = sql.SQL("SELECT DISTINCT seg FROM penstock_fans WHERE fan_out <> ALL ({}::integer[])")
        found = self.connection.execute(query.format(sql.Literal(list(self.entity.leading)))).fetchall()
        return rounds, {seg for (seg,) in found}

    # ------------------------------------------------------------ ops on single entities

    def _fold_ops(self, seg: int, number: int) -> None:
        which: sql.Composable = sql.SQL("true")
        if self.in_steps:
            which = sql.SQL("h.seg = {} AND h.round = {}").format(sql.Literal(seg), sql.Literal(number))
            self._execute("TRUNCATE penstock_ends, penstock_last, penstock_since")
        self._run("ends", which=which)
        self._execute("ANALYZE penstock_ends")
        row = self._run("early", which=which).fetchone()
        self.early += row[0] if row else 0
        entity = self.entity
        first_multi = len(entity.key) + len(entity.scalars)
        spelled = entity.pick([each for each in entity.multi if not each.is_text], "x.field", what="spell")
        self._run("last", which=which, spelled=spelled, multi=sql.Literal(first_multi))
        self._execute("ANALYZE penstock_last")
        self._date_early(which, spelled, first_multi)
        self._apply_last(seg)
        if entity.leading:
            self._settle_round()
        self._forget_empty()

    def _date_early(self, which: sql.Composable, spelled: sql.Composable, first_multi: int) -> None:
        """Note since when ops wait for each entity that does not exist."""
        entity = self.entity
        before = [
            sql.SQL("SELECT {}, CASE WHEN {} IS NOT NULL THEN '' END").format(sql.Literal(each.number), each.of("w"))
            for each in entity.scalars
        ]
        before += [
            sql.SQL("SELECT {}, unnest({}::text[])").format(sql.Literal(each.number), each.of("w"))
            for each in entity.multi
        ]
        resets = [
            sql.SQL(
                "UNION ALL SELECT DISTINCT x.eid, x.pos, 0, {0}, '', false FROM named x WHERE x.field = ANY ({1}) "
                "AND NOT EXISTS (SELECT FROM named y WHERE y.pos = x.pos AND y.field = {0})"
            ).format(sql.Literal(each.number), sql.Literal([number.number for number in entity.deciding(each.name)]))
            for fan_out in entity.fan_outs
            for each in entity.named(fan_out.fields)
        ]
        self._run(
            "since",
            which=which,
            spelled=spelled,
            multi=sql.Literal(first_multi),
            before=sql.SQL(" UNION ALL ").join(before or [sql.SQL("SELECT 0, NULL::text").format()]),
            resets=sql.SQL(" ").join(resets),
        )

    def _apply_last(self, seg: int) -> None:
        columns, sets = [], []
        owners = {name: fan_out for fan_out in self.entity.fan_outs for name in fan_out.fields}
        for each in self.entity.scalars:
            number = sql.Literal(each.number)
            columns.append(sql.SQL("max(l.value) FILTER (WHERE l.field = {}) AS {}").format(number, result("v", each)))
            columns.append(sql.SQL("max(l.pos) FILTER (WHERE l.field = {}) AS {}").format(number, result("p", each)))
            sets.append(self._set_scalar(each, owners.get(each.name)))
        for each in self.entity.multi:
            for kind, test in (("a", "l.adds"), ("r", "NOT l.adds")):
                columns.append(
                    sql.SQL("array_agg(l.value) FILTER (WHERE l.field = {} AND {}) AS {}").format(
                        sql.Literal(each.number), sql.SQL(test), result(kind, each)
                    )
                )
            sets.append(set_multi(each))
        self._run(
            "apply",
            seg=sql.Literal(seg),
            wrote=sql.SQL("coalesce(p.wrote, '{}')" if self.entity.leading else "NULL"),
            sets=commas(sets) if sets else sql.SQL("eid = w.eid"),
            columns=commas(columns) if columns else sql.SQL("true"),
        )

    def _set_scalar(self, each: Field, owner: FanOut | None) -> sql.Composed:
        value, place = sql.Identifier("p", f"v{each.number}"), sql.Identifier("p", f"p{each.number}")
        if owner is None:
            is_newest, moved = sql.SQL("{} IS NOT NULL").format(place), sql.SQL("false").format()
        else:
            places = commas(sql.Identifier("p", f"p{match.number}") for match in self.entity.named(owner.match))
            at = sql.SQL("greatest({})").format(places)
            is_newest = sql.SQL("{} >= coalesce({}, -1)").format(place, at)
            moved = sql.SQL("{} IS NOT NULL").format(at)
        return sql.SQL(
            "{own} = CASE WHEN {newest} THEN {value} WHEN {moved} THEN NULL WHEN e.gone IS NULL THEN w.{own} END"
        ).format(own=each.work, newest=is_newest, value=each.read(value), moved=moved)

    def _forget_empty(self) -> None:
        """Nothing is kept of an entity that does not exist and of which nothing is known."""
        self.connection.execute(
            sql.SQL("UPDATE penstock_work w SET since = NULL WHERE w.since IS NOT NULL AND (w.alive OR NOT {})").format(
                is_known(self.entity)
            )
        )

    # ------------------------------------------------------------ barriers

    def _apply_barrier(self, seg: int, barrier: Barrier) -> None:
        if barrier.what == "clear" and barrier.field is None:
            self._clear_all()
        elif barrier.what == "clear":
            self._clear_field(seg, barrier)
        elif barrier.fan_out is None:
            self._apply_to_matching(seg, barrier)
        else:
            self._fan_out(seg, barrier)
        self._forget_empty()

    def _clear_all(self) -> None:
        self.cleared = True
        sets = [
            sql.SQL("{} = {}").format(each.work, sql.SQL("'{}'" if each.is_multi else "NULL"))
            for each in self.entity.fields
        ]
        self.connection.execute(
            sql.SQL("UPDATE penstock_work w SET {}").format(commas([sql.SQL("alive = false, since = NULL"), *sets]))
        )
        self.connection.execute(
            sql.SQL("DELETE FROM {} x WHERE {}").format(self.tables.name("early_ops"), self.tables.own("x"))
        )

    def _clear_field(self, seg: int, barrier: Barrier) -> None:
        entity = self.entity
        each = next(field for field in entity.fields if field.number == barrier.field)
        fan_out = entity.layout.shape.fan_out_of(self._source_of(barrier))
        if fan_out is not None and each.name in fan_out.fields:
            self.tables.forget_fields(self.connection, fan_out, [each.name])
        self._bring(seg, sql.SQL("({})").format(sql.SQL(" OR ").join(f.is_set for f in entity.affected_by(each.name))))
        self._bring_early()
        empty = sql.SQL("'{{}}'::{}[]").format(sql.SQL(each.column.type)) if each.is_multi else each.read(sql.NULL)
        self._change({each: empty}, sql.SQL("ARRAY[{}]").format(sql.Literal(each.number)), sql.SQL(""))

    def _source_of(self, barrier: Barrier) -> str:
        row = self.connection.execute(
            "SELECT doc ->> 'table' FROM penstock_documents WHERE pos = %s", [barrier.seq >> 24]
        ).fetchone()
        assert row
        return str(row[0])

    def _apply_to_matching(self, seg: int, barrier: Barrier) -> None:
        pieces = self.connection.execute(
            "SELECT inner_n, comparison, what, field, value FROM penstock_pieces WHERE seq = %s "
            "ORDER BY inner_n, comparison",
            [barrier.seq],
        ).fetchall()
        by_number = {each.number: each for each in self.entity.fields}
        compared: dict[int, tuple[Field, list[str]]] = {}
        for inner, comparison, _, number, value in pieces:
            if inner == 0:
                compared.setdefault(comparison, (by_number[number], []))[1].append(value)
        ops = [(what, by_number[number], value) for inner, _, what, number, value in pieces if inner]
        if not ops:
            return

        def where(row: str) -> sql.Composed:
            return sql.SQL(" AND ").join(
                each.matches(
                    each.own_of(row) if row == "t" else each.of(row), sql.SQL("{}::text[]").format(sql.Literal(values))
                )
                for each, values in compared.values()
            )

        self._bring(seg, where("t"))
        new = {each: after_pieces(each, ops) for each in dict.fromkeys(each for _, each, _ in ops)}
        wrote = sql.SQL("{}::integer[]").format(sql.Literal(sorted(each.number for each in new)))
        self._change(new, wrote, sql.SQL("WHERE w.alive AND {}").format(where("w")))

    def _fan_out(self, seg: int, barrier: Barrier) -> None:
        """A fan-out that sets what another one matches on."""
        assert barrier.fan_out is not None
        fan_out = self.entity.fan_outs[barrier.fan_out]
        self._spread(seg, sql.SQL("x.seq = {}").format(sql.Literal(barrier.seq)))
        fields = self.entity.named(fan_out.fields)
        wrote = sql.Composed([sql.SQL("'{}'::integer[]")])
        for each in fields:
            wrote += sql.SQL(" || CASE WHEN x.fields ? {} THEN ARRAY[{}] END").format(
                sql.Literal(each.name), sql.Literal(each.number)
            )
        new = {each: new_value(each, sql.SQL("x.fields")) for each in fields}
        which = sql.SQL("JOIN penstock_spread x ON x.match = {} WHERE w.alive").format(
            self.entity.match_of(fan_out, "w")
        )
        self._change(new, wrote, which)
        self._execute("TRUNCATE penstock_spread")
