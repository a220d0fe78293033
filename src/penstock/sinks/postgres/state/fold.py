"""Fold the ops of a slice onto copies of the entities that they concern. The meaning is that of `core.ops.fold`.

- A declared fan-out decides its fields, whatever came first. So at the end of a segment each entity takes the last
  values for its match, where there are any; otherwise a field is null if its match was written after it.
- A barrier (`clear`, a `query_op_set` of an undeclared table, a fan-out that sets what another matches on) cuts the
  slice into segments. It is applied as the reference does it: `_settled` repeats its function `_settle`.
- Where a fan-out sets what another matches on, documents of one entity are folded one by one, also with `_settled`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from penstock.core.ops import FanOut
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.state.documents import Documents
from penstock.sinks.postgres.state.fields import Entity, Field
from penstock.sinks.postgres.state.tables import StateTables


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


@dataclass
class Fold:
    """The fold of one slice."""

    connection: Connection
    entity: Entity
    tables: StateTables
    documents: Documents
    #: ops that came before their entity
    early: int = 0
    #: every entity of the table was removed
    cleared: bool = False
    #: documents of one entity are folded one by one, or there are barriers
    in_steps: bool = field(default=False, init=False)
    #: about as many rows as `penstock_work` had when the server last looked at it
    known_rows: int = field(default=0, init=False)

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
                match=_commas(sql.Identifier(f"c{each.number}", "value") for each in fields),
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

    # ------------------------------------------------------------ entities

    def _load(self) -> None:
        entity, found = self.entity, sql.SQL("({} IS NOT NULL)").format(self.entity.key[0].own_of("t"))
        values = []
        for each in entity.fields:
            own, otherwise = each.own_of("t"), sql.SQL("NULL")
            if each.is_multi:
                own, otherwise = sql.SQL("coalesce({}, '{{}}')").format(own), sql.SQL("'{}'")
            values.append(
                sql.SQL("CASE WHEN {} THEN {} WHEN e.key IS NOT NULL THEN {} ELSE {} END").format(
                    found, own, _early_value(each), otherwise
                )
            )
        self.known_rows = self._run(
            "load",
            names=_commas(each.work for each in entity.columns),
            found=found,
            values=_commas([entity.keys_of("y"), *values]),
            heads=entity.keys_of("h"),
            target=entity.target.name.sql,
            same=entity.same_key("y", "t"),
            early=self.tables.name("early_ops"),
            own=self.tables.own("e"),
            key=entity.key_texts("y"),
        ).rowcount
        if self.in_steps:
            keys = _commas(each.work for each in entity.key)
            self.connection.execute(sql.SQL("CREATE INDEX ON pg_temp.penstock_work ({})").format(keys))
        self._execute("ANALYZE penstock_work")

    def _bring(self, seg: int, which: sql.Composable, joined: sql.Composable | None = None) -> None:
        """Bring entities of the table `t` that no document has named so far."""
        if self.cleared:
            return
        entity = self.entity
        own = [
            sql.SQL("coalesce({}, '{{}}')").format(each.own_of("t")) if each.is_multi else each.own_of("t")
            for each in entity.columns
        ]
        brought = self._run(
            "bring",
            names=_commas(each.work for each in entity.columns),
            seg=sql.Literal(seg),
            own=_commas(own),
            target=entity.target.name.sql,
            joined=joined or sql.SQL(""),
            which=which,
            same=entity.same_key("w", "t"),
        ).rowcount
        if brought > self.known_rows:
            # The server would take the table for as small as it was.
            self._execute("ANALYZE penstock_work")
            self.known_rows += brought

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
            columns.append(sql.SQL("max(l.value) FILTER (WHERE l.field = {}) AS {}").format(number, _name("v", each)))
            columns.append(sql.SQL("max(l.pos) FILTER (WHERE l.field = {}) AS {}").format(number, _name("p", each)))
            sets.append(self._set_scalar(each, owners.get(each.name)))
        for each in self.entity.multi:
            for kind, test in (("a", "l.adds"), ("r", "NOT l.adds")):
                columns.append(
                    sql.SQL("array_agg(l.value) FILTER (WHERE l.field = {} AND {}) AS {}").format(
                        sql.Literal(each.number), sql.SQL(test), _name(kind, each)
                    )
                )
            sets.append(_set_multi(each))
        self._run(
            "apply",
            seg=sql.Literal(seg),
            wrote=sql.SQL("coalesce(p.wrote, '{}')" if self.entity.leading else "NULL"),
            sets=_commas(sets) if sets else sql.SQL("eid = w.eid"),
            columns=_commas(columns) if columns else sql.SQL("true"),
        )

    def _set_scalar(self, each: Field, owner: FanOut | None) -> sql.Composed:
        value, place = sql.Identifier("p", f"v{each.number}"), sql.Identifier("p", f"p{each.number}")
        if owner is None:
            is_newest, moved = sql.SQL("{} IS NOT NULL").format(place), sql.SQL("false").format()
        else:
            places = _commas(sql.Identifier("p", f"p{match.number}") for match in self.entity.named(owner.match))
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

    # ------------------------------------------------------------ fan-outs

    def _spread(self, seg: int, which: sql.Composable) -> None:
        """Keep the last values of fan-outs, and bring the entities that they concern."""
        self._run("spread", which=which)
        self._execute("ANALYZE penstock_spread")
        self._run(
            "keep_values",
            values=self.tables.name("fan_out_values"),
            pipeline=sql.Literal(self.tables.pipeline),
            stream=sql.Literal(self.tables.stream),
            tables=sql.Literal([each.table for each in self.entity.fan_outs]),
        )
        for number, fan_out in enumerate(self.entity.fan_outs):
            same = [
                sql.SQL("{} = {}").format(each.own_of("t"), each.read(part))
                if each.is_simple
                else sql.SQL("{}::text = {}").format(each.own_of("t"), part)
                for each, part in (
                    (each, sql.SQL("x.match[{}]").format(sql.Literal(place)))
                    for place, each in enumerate(self.entity.named(fan_out.match), start=1)
                )
            ]
            joined = sql.SQL("JOIN (SELECT * FROM penstock_spread WHERE fan_out = {}) x ON {}").format(
                sql.Literal(number), sql.SQL(" AND ").join(same)
            )
            self._bring(seg, sql.SQL("true"), joined)

    def _give_values(self, seg: int) -> None:
        for number, fan_out in enumerate(self.entity.fan_outs):
            fields = self.entity.named(fan_out.fields)
            new = [_new_value(each, sql.SQL("l.fields")) for each in fields]
            self._run(
                "give_values",
                sets=_commas(sql.SQL("{} = {}").format(f.work, value) for f, value in zip(fields, new, strict=True)),
                values=self.tables.name("fan_out_values"),
                own=self.tables.own("l"),
                table=sql.Literal(fan_out.table),
                number=sql.Literal(number),
                match=self.entity.match_of(fan_out, "k"),
                seg=sql.Literal(seg),
                now=_commas(each.of("w") for each in fields),
                new=_commas(new),
            )

    def _settle_round(self) -> None:
        """Let the fan-outs decide after one document of each entity."""
        fields = self.entity.related
        base = sql.SQL(
            "SELECT w.eid, w.alive, w.born, w.wrote, {} FROM penstock_work w WHERE w.wrote IS NOT NULL"
        ).format(_commas(each.of("w") for each in fields))
        sets = [sql.SQL("{} = {}").format(each.work, each.of("z")) for each in fields]
        self.connection.execute(
            sql.SQL("UPDATE penstock_work w SET {}, wrote = NULL, born = false FROM ({}) z WHERE z.eid = w.eid").format(
                _commas(sets), self._settled(base, fields)
            )
        )

    def _change(self, new: Mapping[Field, sql.Composable], wrote: sql.Composable, which: sql.Composable) -> None:
        """Change fields of entities, and let the fan-outs decide after that. `wrote`: the numbers of the fields.

        `which` begins after FROM penstock_work w.
        """
        fields = list(dict.fromkeys((*self.entity.related, *new)))
        values = [sql.SQL("{} AS {}").format(new[each], each.work) if each in new else each.of("w") for each in fields]
        base = sql.SQL("SELECT w.eid, w.alive, false AS born, {} AS wrote, {} FROM penstock_work w {}").format(
            wrote, _commas(values), which
        )
        sets = [sql.SQL("{} = {}").format(each.work, each.of("z")) for each in fields]
        self.connection.execute(
            sql.SQL(
                "UPDATE penstock_work w SET {} FROM ({}) z WHERE z.eid = w.eid AND ROW({})::record *<> ROW({})::record"
            ).format(
                _commas(sets),
                self._settled(base, fields),
                _commas(each.of("w") for each in fields),
                _commas(each.of("z") for each in fields),
            )
        )

    def _settled(self, base: sql.Composed, fields: Sequence[Field]) -> sql.Composed:
        """Rows after the fan-outs have decided their fields again, one fan-out after the other."""
        for fan_out in self.entity.fan_outs:
            own, match = self.entity.named(fan_out.fields), self.entity.named(fan_out.match)
            wrote, values = sql.Composed([sql.SQL("k.wrote")]), []
            for each in own:
                wrote += sql.SQL(" || CASE WHEN k.moved OR l.fields ? {} THEN ARRAY[{}] END").format(
                    sql.Literal(each.name), sql.Literal(each.number)
                )
            for each in fields:
                values.append(_settled_value(each) if each in own else each.of("k"))
            numbers = [each.number for each in match]
            base = load_statement(__package__, "settle").format(
                base=base,
                wrote=wrote,
                fields=_commas(values),
                match_numbers=sql.Literal(numbers),
                all_numbers=sql.Literal([*numbers, *(each.number for each in own)]),
                match=self.entity.match_of(fan_out, "b"),
                values=self.tables.name("fan_out_values"),
                own=self.tables.own("l"),
                table=sql.Literal(fan_out.table),
            )
        return base

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
            sql.SQL("UPDATE penstock_work w SET {}").format(_commas([sql.SQL("alive = false, since = NULL"), *sets]))
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

    def _bring_early(self) -> None:
        """Bring what waits for entities that no document of the slice names."""
        entity = self.entity
        values: list[sql.Composable] = [
            each.read(sql.SQL("e.key[{}]").format(sql.Literal(place))) for place, each in enumerate(entity.key, start=1)
        ]
        values += [_early_value(each) for each in entity.fields]
        self.connection.execute(
            load_statement(__package__, "bring_early").format(
                names=_commas(each.work for each in entity.columns),
                values=_commas(values),
                early=self.tables.name("early_ops"),
                own=self.tables.own("e"),
                key=entity.key_texts("w"),
            )
        )

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
        new = {each: _after_pieces(each, ops) for each in dict.fromkeys(each for _, each, _ in ops)}
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
        new = {each: _new_value(each, sql.SQL("x.fields")) for each in fields}
        which = sql.SQL("JOIN penstock_spread x ON x.match = {} WHERE w.alive").format(
            self.entity.match_of(fan_out, "w")
        )
        self._change(new, wrote, which)
        self._execute("TRUNCATE penstock_spread")

    # ------------------------------------------------------------ statements

    def _run(self, name: str, **holes: sql.Composable) -> Any:
        return self.connection.execute(load_statement(__package__, name).format(**holes))

    def _execute(self, statement: str) -> None:
        self.connection.execute(statement.encode())


def is_known(entity: Entity) -> sql.Composed:
    """Whether anything is known of an entity: a row `w` of `penstock_work`."""
    tests: list[sql.Composable] = [sql.SQL("{} IS NOT NULL").format(each.of("w")) for each in entity.scalars]
    tests += [sql.SQL("cardinality({}) > 0").format(each.of("w")) for each in entity.multi]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(tests or [sql.SQL("false")]))


def _early_value(each: Field) -> sql.Composed:
    """The value of a field in a row `e` of `early_ops`."""
    if not each.is_multi:
        return each.read(sql.SQL("e.fields -> 'scalars' ->> {}").format(sql.Literal(each.name)))
    return sql.SQL("ARRAY(SELECT {} FROM jsonb_array_elements_text(e.fields -> 'multi' -> {}) v (value))").format(
        each.read(sql.SQL("v.value")), sql.Literal(each.name)
    )


def _new_value(each: Field, values: sql.Composable) -> sql.Composed:
    """A field of a row `w`, as it is in some last values, if they have it."""
    name = sql.Literal(each.name)
    read = each.read(sql.SQL("{} ->> {}").format(values, name))
    return sql.SQL("CASE WHEN {} ? {} THEN {} ELSE {} END").format(values, name, read, each.of("w"))


def _set_multi(each: Field) -> sql.Composed:
    """A field with several values: those before, without the removed ones, and the added ones."""
    added, removed = (sql.Identifier("p", f"{kind}{each.number}") for kind in "ar")
    before = sql.SQL("CASE WHEN e.gone IS NULL THEN {} END").format(each.of("w"))
    merged = _merge_values(
        each,
        before,
        sql.SQL("coalesce({}, '{{}}')").format(added),
        sql.SQL("coalesce({}, '{{}}')").format(removed),
    )
    return sql.SQL(
        "{own} = CASE WHEN {added} IS NULL AND {removed} IS NULL THEN coalesce({before}, '{{}}') ELSE {merged} END"
    ).format(own=each.work, added=added, removed=removed, before=before, merged=merged)


def _merge_values(each: Field, before: sql.Composable, added: sql.Composable, removed: sql.Composable) -> sql.Composed:
    order = sql.SQL("z.v" if each.is_ordered else 'z.v::text COLLATE "C"')
    # EXCEPT hashes its rows: an entity may have many thousand values.
    return sql.SQL(
        "ARRAY(SELECT z.v FROM (SELECT {read} AS v FROM (SELECT v::text AS v FROM unnest({before}) v "
        "EXCEPT SELECT v FROM unnest({added} || {removed}) v UNION ALL SELECT v FROM unnest({added}) v) y) z "
        "WHERE z.v IS NOT NULL ORDER BY {order})"
    ).format(before=before, added=added, removed=removed, read=each.read(sql.SQL("y.v")), order=order)


def _after_pieces(each: Field, ops: Sequence[tuple[str, Field, str | None]]) -> sql.Composed:
    """A field after the ops of a filter, one after the other."""
    own = [(what, value) for what, field_, value in ops if field_ == each]
    if not each.is_multi:
        return each.read(sql.SQL("{}::text").format(sql.Literal(own[-1][1])))
    last = {value: what for what, value in own}
    added, removed = (
        sql.SQL("{}::text[]").format(sql.Literal([value for value, what in last.items() if what == kind]))
        for kind in ("add", "remove")
    )
    return _merge_values(each, each.of("w"), added, removed)


def _settled_value(each: Field) -> sql.Composed:
    """A field of a fan-out after it has decided: of a row `k`, with last values `l` where the fan-out has any."""
    name = sql.Literal(each.name)
    return sql.SQL(
        "CASE WHEN l.fields ? {name} THEN {value} WHEN k.moved AND NOT k.wrote @> ARRAY[{number}] THEN NULL "
        "ELSE k.{own} END AS {own}"
    ).format(
        name=name,
        value=each.read(sql.SQL("l.fields ->> {}").format(name)),
        number=sql.Literal(each.number),
        own=each.work,
    )


def _name(kind: str, each: Field) -> sql.Identifier:
    return sql.Identifier(f"{kind}{each.number}")


def _commas(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
