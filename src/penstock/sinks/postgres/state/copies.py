"""Copies of the entities that a slice concerns, and how fan-outs decide their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.state.expressions import commas, early_value, new_value, settled_value
from penstock.sinks.postgres.state.fields import Entity, Field
from penstock.sinks.postgres.state.tables import StateTables


@dataclass(kw_only=True)
class EntityCopies:
    """The rows of `penstock_work`."""

    connection: Connection
    entity: Entity
    tables: StateTables
    #: every entity of the table was removed
    cleared: bool = False
    #: documents of one entity are folded one by one, or there are barriers
    in_steps: bool = field(default=False, init=False)
    #: about as many rows as there were when the server last looked
    known_rows: int = field(default=0, init=False)

    def _load(self) -> None:
        entity, found = self.entity, sql.SQL("({} IS NOT NULL)").format(self.entity.key[0].own_of("t"))
        values = []
        for each in entity.fields:
            own, otherwise = each.own_of("t"), sql.SQL("NULL")
            if each.is_multi:
                own, otherwise = sql.SQL("coalesce({}, '{{}}')").format(own), sql.SQL("'{}'")
            values.append(
                sql.SQL("CASE WHEN {} THEN {} WHEN e.key IS NOT NULL THEN {} ELSE {} END").format(
                    found, own, early_value(each), otherwise
                )
            )
        self.known_rows = self._run(
            "load",
            names=commas(each.work for each in entity.columns),
            found=found,
            values=commas([entity.keys_of("y"), *values]),
            heads=entity.keys_of("h"),
            target=entity.target.name.sql,
            same=entity.same_key("y", "t"),
            early=self.tables.name("early_ops"),
            own=self.tables.own("e"),
            key=entity.key_texts("y"),
        ).rowcount
        if self.in_steps:
            keys = commas(each.work for each in entity.key)
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
            names=commas(each.work for each in entity.columns),
            seg=sql.Literal(seg),
            own=commas(own),
            target=entity.target.name.sql,
            joined=joined or sql.SQL(""),
            which=which,
            same=entity.same_key("w", "t"),
        ).rowcount
        if brought > self.known_rows:
            # The server would take the table for as small as it was.
            self._execute("ANALYZE penstock_work")
            self.known_rows += brought

    def _bring_early(self) -> None:
        """Bring what waits for entities that no document of the slice names."""
        entity = self.entity
        values: list[sql.Composable] = [
            each.read(sql.SQL("e.key[{}]").format(sql.Literal(place))) for place, each in enumerate(entity.key, start=1)
        ]
        values += [early_value(each) for each in entity.fields]
        self.connection.execute(
            load_statement(__package__, "bring_early").format(
                names=commas(each.work for each in entity.columns),
                values=commas(values),
                early=self.tables.name("early_ops"),
                own=self.tables.own("e"),
                key=entity.key_texts("w"),
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
            new = [new_value(each, sql.SQL("l.fields")) for each in fields]
            self._run(
                "give_values",
                sets=commas(sql.SQL("{} = {}").format(f.work, value) for f, value in zip(fields, new, strict=True)),
                values=self.tables.name("fan_out_values"),
                own=self.tables.own("l"),
                table=sql.Literal(fan_out.table),
                number=sql.Literal(number),
                match=self.entity.match_of(fan_out, "k"),
                seg=sql.Literal(seg),
                now=commas(each.of("w") for each in fields),
                new=commas(new),
            )

    def _settle_round(self) -> None:
        """Let the fan-outs decide after one document of each entity."""
        fields = self.entity.related
        base = sql.SQL(
            "SELECT w.eid, w.alive, w.born, w.wrote, {} FROM penstock_work w WHERE w.wrote IS NOT NULL"
        ).format(commas(each.of("w") for each in fields))
        sets = [sql.SQL("{} = {}").format(each.work, each.of("z")) for each in fields]
        self.connection.execute(
            sql.SQL("UPDATE penstock_work w SET {}, wrote = NULL, born = false FROM ({}) z WHERE z.eid = w.eid").format(
                commas(sets), self._settled(base, fields)
            )
        )

    def _change(self, new: Mapping[Field, sql.Composable], wrote: sql.Composable, which: sql.Composable) -> None:
        """Change fields of entities, and let the fan-outs decide after that. `wrote`: the numbers of the fields.

        `which` begins after FROM penstock_work w.
        """
        fields = list(dict.fromkeys((*self.entity.related, *new)))
        values = [sql.SQL("{} AS {}").format(new[each], each.work) if each in new else each.of("w") for each in fields]
        base = sql.SQL("SELECT w.eid, w.alive, false AS born, {} AS wrote, {} FROM penstock_work w {}").format(
            wrote, commas(values), which
        )
        sets = [sql.SQL("{} = {}").format(each.work, each.of("z")) for each in fields]
        self.connection.execute(
            sql.SQL(
                "UPDATE penstock_work w SET {} FROM ({}) z WHERE z.eid = w.eid AND ROW({})::record *<> ROW({})::record"
            ).format(
                commas(sets),
                self._settled(base, fields),
                commas(each.of("w") for each in fields),
                commas(each.of("z") for each in fields),
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
                values.append(settled_value(each) if each in own else each.of("k"))
            numbers = [each.number for each in match]
            base = load_statement(__package__, "settle").format(
                base=base,
                wrote=wrote,
                fields=commas(values),
                match_numbers=sql.Literal(numbers),
                all_numbers=sql.Literal([*numbers, *(each.number for each in own)]),
                match=self.entity.match_of(fan_out, "b"),
                values=self.tables.name("fan_out_values"),
                own=self.tables.own("l"),
                table=sql.Literal(fan_out.table),
            )
        return base

    # ------------------------------------------------------------ statements

    def _run(self, name: str, **holes: sql.Composable) -> Any:
        return self.connection.execute(load_statement(__package__, name).format(**holes))

    def _execute(self, statement: str) -> None:
        self.connection.execute(statement.encode())
