"""The fold of a slice in Spark DataFrames: what each entity that the slice touches has become.

The reference (`penstock.core.ops.fold`) applies one op after the other. Here everything is a comparison of positions,
so that one pass is enough:

- Only the last write of a field, the last op of a value, the last delete and the last creation of an entity count.
- A declared fan-out decides its fields: what it set last for an entity's last match is what the entity has, whichever
  came first. An own value of such a field counts only if no match field was written after it.
- A `clear` is a delete, or a write of null, of every entity.
- An undeclared `query_op_set` needs the entities that match at its place: everything before it is folded, and its ops
  become ops of these entities. This is a barrier, and costs a pass of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from penstock.core.ops import FanOut, Layout
from penstock.core.types import Type
from penstock.lake.folding.values import (
    column_of_text,
    join_texts,
    literal,
    split_text,
    text_of_column,
)
from penstock.lake.merge_statement import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: places of what is there before a slice: of early ops that were kept, and of what never happened
BEFORE, NEVER = -1, -2


@dataclass(frozen=True)
class Clears:
    """The places of `clear` ops; NEVER: there is none."""

    #: of all entities
    all: tuple[int, ...] = ()
    #: of a field, by any table
    fields: Mapping[str, int] = field(default_factory=dict)
    #: of a field by the fan-out table that sets it: its values are forgotten
    fan_outs: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.all or self.fields)

    @property
    def last(self) -> int:
        return max(self.all, default=NEVER)

    @classmethod
    def of(cls, found: Sequence[tuple[int, str | None, str | None]], layout: Layout, before: int | None) -> Clears:
        """From (place, table, field) of each one; only those before a place."""
        known = [each for each in found if before is None or each[0] < before]
        own = {name: each.table for each in layout.fan_outs for name in each.fields}
        fields: dict[str, int] = {}
        fan_outs: dict[str, int] = {}
        for place, table, name in known:
            if name is not None:
                fields[name] = max(place, fields.get(name, NEVER))
                if own.get(name) == table:
                    fan_outs[name] = max(place, fan_outs.get(name, NEVER))
        return cls(tuple(place for place, _, name in known if name is None), fields, fan_outs)


def fan_out_id(fan_out: FanOut) -> str:
    """A fan-out and what it matches on: values that were kept for another match are not for this one."""
    return json.dumps([fan_out.table, *fan_out.match])


def key_text(layout: Layout) -> str:
    """SQL for the text of an entity's key, from the table's columns."""
    return join_texts([text_of_column(quote(column.name), column.type) for column in layout.key])


@dataclass(frozen=True)
class Fold:
    """A slice's ops over the state before it."""

    layout: Layout
    #: `documents.OPS`, without those in quarantine; used several times
    ops: DataFrame
    #: the entities of the table: its declared columns, without tombstones
    base: DataFrame
    #: `side_data.SIDE`: early ops and last values of fan-outs, as they are before the slice
    side: DataFrame
    clears: Clears = field(default_factory=Clears)
    #: every entity is in the result, not only those that the slice touches
    everything: bool = False

    # ------------------------------------------------------------ names and types

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The types of the table's columns, as Spark has them."""
        found: Mapping[str, str] = {name: type_.simpleString() for name, type_ in _types(self.base)}
        return found

    def _item(self, name: str) -> str:
        return self.types[name].removeprefix("array<").removesuffix(">")

    @property
    def _scalars(self) -> list[tuple[int, str, Type]]:
        return [(i, column.name, column.type) for i, column in enumerate(self.layout.scalars)]

    @property
    def _multi(self) -> list[tuple[int, str, Type]]:
        return [(i, column.name, column.type) for i, column in enumerate(self.layout.multi)]

    # ------------------------------------------------------------ the result

    def changes(self) -> DataFrame:
        """One row for each entity at hand: `ek`, its columns k0.. s0.. m0.., and

        - `exists` now, and whether it `existed`; `changed`: it has another row now, or none
        - `early`: the ops that wait for it now, and `was_early`, those before the slice; with `since` and `was_since`
        """
        decided = self._decided()
        same = [f"(s{i} <=> bs{i})" for i, _, _ in self._scalars]
        same += [f"(m{i} <=> coalesce(bm{i}, {self._empty(name)}))" for i, name, _ in self._multi]
        changed = f"if(exists, not (existed and {' and '.join(same) or 'true'}), existed)"
        early = f"if(exists, null, {self._early()})"
        return decided.selectExpr(
            "ek",
            *self._keys(),
            *[f"s{i}" for i, _, _ in self._scalars],
            *[f"m{i}" for i, _, _ in self._multi],
            "exists",
            "existed",
            f"{changed} as changed",
            f"{early} as early",
            "was_early",
            f"if({early} is null, null, since) as since",
            "was_since",
        )

    def _decided(self) -> DataFrame:
        """Entities with their own values, and then with those that fan-outs decide, one fan-out after the other."""
        own = self._own()
        for place, fan_out in enumerate(self._fan_outs_in_order):
            if fan_out in self._late:
                own = own.selectExpr("*", *self._own_values(fan_out.fields))
            match = join_texts([self._text(name) for name in fan_out.match])
            own = own.selectExpr("*", f"if(exists, {match}, null) as f{place}")
            values = self._values_of(fan_out).withColumnsRenamed({"match": "lm", "vals": "lv", "pos": "lp"})
            own = own.join(values, own[f"f{place}"] == values["lm"], "left")
            decided = {
                f"s{i}": f"if(map_contains_key(lv, {literal(name)}), "
                f"{column_of_text(f'lv[{literal(name)}]', type_, self.types[name])}, s{i})"
                for i, name, type_ in self._scalars
                if name in fan_out.fields
            }
            leading = [f"{self._decided_at(fan_out, name)} as p_{i}" for i, name, _ in self._leading(fan_out)]
            kept = [name for name in own.columns if name not in ("lm", "lv", "lp", f"f{place}", *decided)]
            own = own.selectExpr(*kept, *[f"{value} as {name}" for name, value in decided.items()], *leading)
        return own

    # ------------------------------------------------------------ fan-outs that set what another one matches on

    @cached_property
    def _fan_outs_in_order(self) -> Sequence[FanOut]:
        """One that sets a match field of another comes before it."""
        return self.layout.shape.fan_outs

    @cached_property
    def _late(self) -> Collection[FanOut]:
        """Fan-outs that match on what another one sets: their own fields wait for it."""
        owned = {name for each in self.layout.fan_outs for name in each.fields}
        return [each for each in self.layout.fan_outs if not owned.isdisjoint(each.match)]

    def _leading(self, fan_out: FanOut) -> list[tuple[int, str, Type]]:
        """The fields of a fan-out that another one matches on."""
        matched = {name for each in self.layout.fan_outs for name in each.match}
        return [each for each in self._scalars if each[1] in fan_out.fields and each[1] in matched]

    def _written_at(self, name: str) -> str:
        """Where a match field was written last, or may as well have been: what matters is what comes after it."""
        own = self._own_place(name)
        if any(name in each.fields for each in self.layout.fan_outs):
            return f"p_{next(i for i, each, _ in self._scalars if each == name)}"
        return own

    def _own_place(self, name: str) -> str:
        """Where a document of the entity, or a `clear`, wrote a field last."""
        return f"greatest(coalesce(writes[{literal(name)}].pos, {NEVER}), {self.clears.fields.get(name, NEVER)})"

    def _decided_at(self, fan_out: FanOut, name: str) -> str:
        """Where a field of a fan-out was written last, if there is a value for the entity's last match.

        The fan-out writes its values when the entity comes into being, when one of its fields or of its match is
        written, and when it is hit. A hit before the last move to a match, or before the entity, is not one; then that
        move or that creation is later.
        """
        moved = ", ".join(self._written_at(each) for each in fan_out.match)
        written = f"greatest({self._own_place(name)}, {moved})"
        fields = ", ".join(self._own_place(each) for each in fan_out.fields)
        given = f"greatest({written}, {fields}, if(stays, {NEVER}, coalesce(born_at, {NEVER})), coalesce(lp, {NEVER}))"
        return f"if(exists and coalesce(map_contains_key(lv, {literal(name)}), false), {given}, {written})"

    def _own(self) -> DataFrame:
        """Entities with the values that their own ops gave them, and the match that they have now."""
        found = self._found()
        gone = f"greatest(coalesce(gone, {NEVER}), {self.clears.last})"
        stays = "(existed and gone is null)" if not self.clears.all else "false"
        found = found.selectExpr("*", f"{gone} as g", f"{stays} as stays").selectExpr(
            "*", f"(stays or coalesce(born, {NEVER}) > g) as exists"
        )
        late = {name for each in self._late for name in each.fields}
        now = self._own_values([name for _, name, _ in self._scalars if name not in late])
        multi = [f"{self._values(name, type_, i)} as m{i}" for i, name, type_ in self._multi]
        written, member = (f"transform({each}, x -> struct(x.pos, x.at))" for each in ("map_values(writes)", "members"))
        live = f"concat({written}, {member})"
        after = f"array_min(transform(filter({live}, x -> x.pos > g), x -> x.at))"
        found = found.withColumn("since", _exprs(f"if(g = {NEVER}, coalesce(was_since, since), {after})")[0])
        kept = ["ek", "exists", "existed", "since", "was_since", "was_early"]
        kept += [name for name in found.columns if name.startswith(("bk", "bs", "bm"))]
        if self._late:
            births = "array_min(filter(births, x -> x > g)) as born_at"
            return found.selectExpr(*kept, "writes", "g", "stays", births, *now, *multi)
        return found.selectExpr(*kept, *now, *multi)

    def _own_values(self, names: Collection[str]) -> list[str]:
        """Fields as an entity's own ops leave them, and what of them waits for it."""
        chosen = [each for each in self._scalars if each[1] in names]
        scalars = [f"{self._scalar(name, type_, i)} as s{i}" for i, name, type_ in chosen]
        return scalars + [f"{self._waiting(name)} as w{i}" for i, name, _ in chosen]

    # ------------------------------------------------------------ SQL for one entity

    def _keys(self) -> list[str]:
        """The key's columns, from its text: a new entity has no row."""
        texts = split_text("ek", len(self.layout.key))
        return [
            f"{column_of_text(text, column.type, self.types[column.name])} as k{i}"
            for i, (text, column) in enumerate(zip(texts, self.layout.key, strict=True))
        ]

    def _text(self, name: str) -> str:
        i, type_ = next((i, type_) for i, each, type_ in self._scalars if each == name)
        return text_of_column(f"s{i}", type_)

    def _match_fields(self, name: str) -> tuple[str, ...]:
        """The fields that decide whether a field's own value still counts."""
        return next((each.match for each in self.layout.fan_outs if name in each.fields), ())

    def _written(self, name: str) -> str:
        """Whether an own write of a scalar field is what counts."""
        place = f"writes[{literal(name)}].pos"
        conditions = [f"{place} > greatest(g, {self.clears.fields.get(name, NEVER)})"]
        conditions += [f"{place} >= {self._written_at(each)}" for each in self._match_fields(name)]
        return f"coalesce({' and '.join(conditions)}, false)"

    def _scalar(self, name: str, type_: Type, i: int) -> str:
        own = column_of_text(f"writes[{literal(name)}].v", type_, self.types[name])
        before = f"bs{i}"
        if name in self.clears.fields:
            before = f"cast(null as {self.types[name]})"
        keeps = " and ".join(["stays", *(f"{self._written_at(each)} = {NEVER}" for each in self._match_fields(name))])
        return f"if({self._written(name)}, {own}, if({keeps}, {before}, null))"

    def _waiting(self, name: str) -> str:
        """The text of a scalar field, for an entity that does not exist yet."""
        return f"if(not exists and {self._written(name)}, writes[{literal(name)}].v, null)"

    def _values(self, name: str, type_: Type, i: int) -> str:
        """A multi-value field, in order: what was there, without what went out last, with what came in last."""
        after = f"greatest(g, {self.clears.fields.get(name, NEVER)})"

        def last(kind: str) -> str:
            is_last = f"x.f = {literal(name)} and x.t = '{kind}' and x.pos > {after}"
            return f"transform(filter(members, x -> {is_last}), x -> {column_of_text('x.v', type_, self._item(name))})"

        base = f"if(stays, coalesce(bm{i}, {self._empty(name)}), {self._empty(name)})"
        if name in self.clears.fields:
            base = self._empty(name)
        changed = f"array_sort(array_union(array_except({base}, {last('r')}), {last('a')}))"
        return f"if(members is null, {base}, {changed})"

    def _empty(self, name: str) -> str:
        return f"cast(array() as {self.types[name]})"

    def _early(self) -> str:
        """What waits for an entity, as JSON; NULL: nothing."""
        names = ", ".join(literal(name) for _, name, _ in self._scalars)
        texts = ", ".join(f"w{i}" for i, _, _ in self._scalars)
        scalars = "cast(map() as map<string, string>)"
        if names:
            scalars = f"map_filter(map_from_arrays(array({names}), array({texts})), (k, v) -> v is not null)"
        multi = "cast(map() as map<string, array<string>>)"
        if self._multi:
            names = ", ".join(literal(name) for _, name, _ in self._multi)
            texts = ", ".join(f"transform(m{i}, x -> {text_of_column('x', type_)})" for i, _, type_ in self._multi)
            multi = f"map_filter(map_from_arrays(array({names}), array({texts})), (k, v) -> size(v) > 0)"
        both = f"named_struct('s', {scalars}, 'm', {multi})"
        return f"if(size({scalars}) + size({multi}) = 0, null, to_json({both}))"

    # ------------------------------------------------------------ which entities, and what was done to them

    def _found(self) -> DataFrame:
        """Every entity at hand: what was done to it beside the row that it had."""
        done, base = self._done(), self._entities()
        if self.everything or self.clears:
            return done.join(base, "ek", "full_outer").selectExpr("*", "bk0 is not null as existed")
        touched = base.join(done.selectExpr("ek", "true as touched"), "ek", "left")
        hits = ["touched"]
        for place, fan_out in enumerate(self.layout.fan_outs):
            matched = self._fan_outs(fan_out).selectExpr(f"match as hm{place}").distinct()
            touched = touched.join(matched, self._match_of(touched, fan_out) == matched[f"hm{place}"], "left")
            hits.append(f"hm{place} is not null")
        at_hand = touched.where(" or ".join(hits)).select(*base.columns)
        return done.join(at_hand, "ek", "full_outer").selectExpr("*", "bk0 is not null as existed")

    def _match_of(self, frame: DataFrame, fan_out: FanOut) -> Any:
        from pyspark.sql import functions as F

        place = {name: (i, type_) for i, name, type_ in self._scalars}
        texts = [text_of_column(f"bs{place[name][0]}", place[name][1]) for name in fan_out.match]
        return F.expr(join_texts(texts))

    def _entities(self) -> DataFrame:
        return self.base.selectExpr(
            f"{key_text(self.layout)} as ek",
            *[f"{quote(column.name)} as bk{i}" for i, column in enumerate(self.layout.key)],
            *[f"{quote(name)} as bs{i}" for i, name, _ in self._scalars],
            *[f"{quote(name)} as bm{i}" for i, name, _ in self._multi],
        )

    def _done(self) -> DataFrame:
        """What ops of its own have done to each entity."""
        own = self.ops.where("t in ('b', 's', 'a', 'r', 'd')").select("ek", "t", "f", "v", "pos", "n", "at")
        own = own.unionByName(self._early_ops(own))
        slots = own.groupBy("ek", *_exprs("if(t in ('a', 'r'), 'm', t) as u", "f", "if(t in ('a', 'r'), v, null) as x"))
        births = ["collect_set(if(t = 'b', pos, null)) as births"] if self._late else []
        last = slots.agg(*_exprs("max(struct(pos, n, t, v, at)) as last", "min(at) as at", *births))
        op = "last.pos as pos, last.v as v, last.t as t, last.at as at"
        return last.groupBy("ek").agg(
            *_exprs(
                "max(if(u = 'd', last.pos, null)) as gone",
                "max(if(u = 'b', last.pos, null)) as born",
                f"map_from_entries(collect_list(if(u = 's', struct(f, struct({op})), null))) as writes",
                f"collect_list(if(u = 'm', struct(f, {op}), null)) as members",
                "min(if(u in ('s', 'm'), at, null)) as since",
                "max(if(u = 'e', at, null)) as was_since",
                "max(if(u = 'e', last.v, null)) as was_early",
                *(["flatten(collect_list(births)) as births"] if self._late else []),
            )
        )

    def _early_ops(self, own: DataFrame) -> DataFrame:
        """Early ops that were kept, as ops from before the slice."""
        early = self.side.where("kind = 'early'").selectExpr("b as ek", "v", "since as at")
        if not (self.everything or self.clears):
            early = early.join(own.select("ek").distinct(), "ek", "left_semi")
        form = "'s map<string, string>, m map<string, array<string>>'"
        early = early.selectExpr("ek", "v as payload", "at", f"from_json(v, {form}) as kept")
        scalars = "transform(map_entries(kept.s), x -> struct('s' as t, x.key as f, x.value as v))"
        multi = (
            "flatten(transform(map_entries(kept.m), x -> "
            "transform(x.value, y -> struct('a' as t, x.key as f, y as v))))"
        )
        whole = "array(struct('e' as t, cast(null as string) as f, payload as v))"
        rows = early.selectExpr("ek", "at", f"inline(concat({whole}, {scalars}, {multi}))")
        known = ", ".join(literal(name) for _, name, _ in (*self._scalars, *self._multi))
        rows = rows.where(f"t = 'e' or f in ({known})" if known else "t = 'e'")
        return rows.selectExpr("ek", "t", "f", "v", f"cast({BEFORE} as bigint) as pos", "0 as n", "at")

    # ------------------------------------------------------------ fan-outs

    def _fan_outs(self, fan_out: FanOut) -> DataFrame:
        """What the slice sets by a fan-out, the last value for each match and field."""
        own = self.ops.where(f"t = 'f' and tbl = {literal(fan_out.table)}").where(self._is_remembered(fan_out))
        return own.groupBy(*_exprs("ek as match", "f")).agg(*_exprs("max(struct(pos, n, v)) as last"))

    def _is_remembered(self, fan_out: FanOut, place: str = "pos") -> str:
        cleared = {name: at for name, at in self.clears.fan_outs.items() if name in fan_out.fields}
        return " and ".join(f"(f <> {literal(name)} or {place} > {at})" for name, at in cleared.items()) or "true"

    def _values_of(self, fan_out: FanOut) -> DataFrame:
        """The last values of a fan-out by match: those of the slice, and those from before it."""
        before = self.side.where(f"kind = 'fan' and a = {literal(fan_out_id(fan_out))}")
        before = before.selectExpr(
            "b as match", "c as f", f"struct(cast({BEFORE} as bigint) as pos, 0 as n, v) as last"
        )
        before = before.where(self._is_remembered(fan_out, "last.pos"))
        both = before.unionByName(self._fan_outs(fan_out)).groupBy("match", "f").agg(*_exprs("max(last) as last"))
        fields = ", ".join(literal(name) for name in fan_out.fields)
        return (
            both.where(f"f in ({fields})")
            .groupBy("match")
            .agg(
                *_exprs(
                    "map_from_entries(collect_list(struct(f, last.v))) as vals",
                    f"max(if(last.pos = {BEFORE}, {NEVER}, last.pos)) as pos",
                )
            )
        )

    def remembered(self) -> DataFrame:
        """The last values of fan-outs that the slice adds to the side data: `side_data.SIDE`."""
        found = [
            self._fan_outs(each).selectExpr(
                "'fan' as kind",
                f"{literal(fan_out_id(each))} as a",
                "match as b",
                "f as c",
                "last.v as v",
                "cast(null as bigint) as since",
                "false as gone",
            )
            for each in self.layout.fan_outs
        ]
        return reduce(lambda one, other: one.unionByName(other), found)

    # ------------------------------------------------------------ counting

    def early_ops(self) -> DataFrame:
        """Ops that came while their entity did not exist."""
        own = self.ops.where("t in ('b', 's', 'a', 'r', 'd')").select("ek", "t", "pos")
        first = own.groupBy("ek").agg(
            *_exprs(
                "min(if(t = 'b', pos, null)) as first_born",
                "min(if(t in ('s', 'a', 'r'), pos, null)) as first_op",
                "bool_or(t = 'd') as dies",
            )
        )
        existing = self._entities().selectExpr("ek", "true as existed")
        if not self.clears.all:
            first = first.where("dies or first_op < coalesce(first_born, first_op + 1)")
        doubtful = first.select("ek", "dies").join(existing, "ek", "left")
        if not self.clears.all:
            doubtful = doubtful.where("dies or existed is null")
        rows = own.join(doubtful, "ek")
        cleared = f"array_max(filter(array({', '.join(map(str, self.clears.all))}), x -> x < pos))"
        window = "over (partition by ek order by pos range between unbounded preceding and current row)"
        seen = rows.selectExpr(
            "t",
            f"greatest(coalesce(max(if(t = 'd', pos, null)) {window}, {NEVER}), "
            f"{f'coalesce({cleared}, {NEVER})' if self.clears.all else NEVER}) as gone",
            f"coalesce(max(if(t = 'b', pos, null)) {window}, if(existed, {BEFORE}, {NEVER})) as born",
        )
        return seen.where("t in ('s', 'a', 'r') and born <= gone")


def _types(frame: DataFrame) -> list[tuple[str, Any]]:
    return [(each.name, each.dataType) for each in frame.schema.fields]


def _exprs(*texts: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text) for text in texts]
