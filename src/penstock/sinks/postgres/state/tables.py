"""The tables beside the entities: each stream's declaration, its early ops, and the last values of its fan-outs."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from penstock.core.documents import canonical, parse
from penstock.core.ops import FanOut, Layout
from penstock.core.slices import Kind
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.ledger import MISSING_STATES
from penstock.sinks.postgres.state.fields import Entity

_TABLES = ("states", "early_ops", "fan_out_values")


@dataclass(frozen=True, slots=True)
class StateTables:
    """Those of one stream."""

    schema: str
    pipeline: str
    stream: str

    def create(self, connection: Connection) -> None:
        """Create the tables of all streams."""
        connection.execute(load_statement(__package__, "create").format(schema=sql.Identifier(self.schema)))

    def exist(self, connection: Connection) -> bool:
        """Whether all of them are there."""
        query = sql.SQL("SELECT to_regclass(format('%I.fan_out_values', {}::text)) IS NOT NULL")
        row = connection.execute(query.format(sql.Literal(self.schema))).fetchone()
        return bool(row and row[0])

    def name(self, table: str) -> sql.Identifier:
        return sql.Identifier(self.schema, table)

    def own(self, row: str) -> sql.Composed:
        """Whether a row is the stream's."""
        return sql.SQL("{0}.pipeline = {1} AND {0}.stream = {2}").format(
            sql.SQL(row), sql.Literal(self.pipeline), sql.Literal(self.stream)
        )

    def read(self, connection: Connection) -> Layout | None:
        """The declaration as of the last slice; None: the stream has not been in mode `state`."""
        query = sql.SQL("SELECT layout FROM {} x WHERE {}").format(self.name("states"), self.own("x"))
        try:
            with connection.transaction():
                row = connection.execute(query).fetchone()
        except psycopg.Error as error:
            if error.sqlstate in MISSING_STATES:
                return None
            raise
        return Layout.of(parse(row[0])) if row else None

    def has_moved(self, connection: Connection) -> bool:
        """Whether a slice of the stream has brought rows, in any mode."""
        kinds = [kind.value for kind in Kind if kind.moves]
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} x WHERE {} AND x.kind = ANY ({}))").format(
            self.name("slices"), self.own("x"), sql.Literal(kinds)
        )
        row = connection.execute(query).fetchone()
        return bool(row and row[0])

    def note(self, connection: Connection, layout: Layout) -> None:
        query = sql.SQL(
            "INSERT INTO {} (pipeline, stream, layout) VALUES ({}, {}, {}) ON CONFLICT (pipeline, stream) "
            "DO UPDATE SET layout = excluded.layout, at = now()"
        ).format(
            self.name("states"),
            sql.Literal(self.pipeline),
            sql.Literal(self.stream),
            sql.Literal(canonical(layout.document())),
        )
        connection.execute(query)

    def forget(self, connection: Connection) -> None:
        """Remove everything: the stream begins again."""
        if self.exist(connection):
            for table in _TABLES:
                connection.execute(sql.SQL("DELETE FROM {} x WHERE {}").format(self.name(table), self.own("x")))

    def adapt(self, connection: Connection, before: Layout, entity: Entity) -> None:
        """Take a changed declaration into account: values of fan-outs that are no longer declared so are removed."""
        now = {each.table: each for each in entity.fan_outs}
        types = {column.name: column.described for column in (*before.scalars, *before.key)}
        changed = {c.name for c in (*entity.layout.scalars, *entity.layout.key) if c.described != types.get(c.name)}
        for each in before.fan_outs:
            new = now.get(each.table)
            if new is None or new.match != each.match:
                self._drop_fan_out(connection, each)
                continue
            gone = [name for name in each.fields if name not in new.fields]
            if gone:
                self.forget_fields(connection, each, gone)
            if not changed.isdisjoint(new.match):
                self._spell(
                    connection,
                    "fan_out_values",
                    "match",
                    [entity.by_name[n].number for n in new.match],
                    entity,
                    sql.SQL("x.fan_out = {}").format(sql.Literal(each.table)),
                )
        if any(column.name in changed for column in before.key):
            self._spell(connection, "early_ops", "key", [field.number for field in entity.key], entity, sql.SQL("true"))

    def forget_fields(self, connection: Connection, fan_out: FanOut, names: list[str]) -> None:
        """Remove fields from the last values of a fan-out."""
        which = sql.SQL("{} AND x.fan_out = {}").format(self.own("x"), sql.Literal(fan_out.table))
        taken = sql.SQL("{}::text[]").format(sql.Literal(names))
        connection.execute(
            sql.SQL("UPDATE {} x SET fields = x.fields - {names} WHERE {} AND x.fields ?| {names}").format(
                self.name("fan_out_values"), which, names=taken
            )
        )
        connection.execute(
            sql.SQL("DELETE FROM {} x WHERE {} AND x.fields = '{{}}'").format(self.name("fan_out_values"), which)
        )

    def _drop_fan_out(self, connection: Connection, fan_out: FanOut) -> None:
        query = sql.SQL("DELETE FROM {} x WHERE {} AND x.fan_out = {}")
        connection.execute(query.format(self.name("fan_out_values"), self.own("x"), sql.Literal(fan_out.table)))

    def _spell(
        self, connection: Connection, table: str, column: str, numbers: list[int], entity: Entity, which: sql.Composable
    ) -> None:
        """Spell values again: a wider type may print them differently."""
        by_number = {field.number: field for field in entity.columns}
        texts = sql.SQL(", ").join(
            by_number[number].spell(sql.SQL("x.{}[{}]").format(sql.Identifier(column), sql.Literal(place)))
            for place, number in enumerate(numbers, start=1)
        )
        connection.execute(
            sql.SQL("UPDATE {} x SET {} = ARRAY[{}]::text[] WHERE {} AND {}").format(
                self.name(table), sql.Identifier(column), texts, self.own("x"), which
            )
        )
