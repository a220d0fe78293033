"""Write what a fold has changed: rows of the table, and the ops that wait for their entity."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.failures import explain_bad_row, explain_row_error, is_row_error
from penstock.sinks.postgres.state.expressions import commas, is_known
from penstock.sinks.postgres.state.fields import Entity
from penstock.sinks.postgres.state.tables import StateTables
from penstock.sinks.postgres.triggers import check_not_suppressed, disable_triggers

#: characters of a key that a message shows
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class StateWrite:
    """The write of one slice, after its fold, in the same transaction."""

    connection: Connection
    entity: Entity
    tables: StateTables
    #: every row of the table is to go that the fold does not have
    cleared: bool
    runs_triggers: bool

    def run(self) -> Outcome:
        """Write the rows that differ; returns what became of the entities that the slice concerned."""
        self.connection.execute("ANALYZE penstock_work")
        triggers = nullcontext() if self.runs_triggers else disable_triggers(self.connection, self.entity.target)
        with triggers:
            try:
                with self.connection.transaction():
                    outcome = self._write("true")
                    self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            except psycopg.Error as error:
                if not is_row_error(error):
                    raise
                raise explain_bad_row(
                    str(self.entity.target.name), explain_row_error(error), self._find_bad_key(), quarantines=False
                ) from error
        self._write_early()
        return outcome

    def forget_early(self, age: timedelta) -> int:
        """Drop ops that have waited for longer, by the time of the newest document; returns for how many entities."""
        query = sql.SQL(
            "DELETE FROM {} e WHERE {} AND e.since < (SELECT max(at) FROM penstock_documents) - {}::interval"
        ).format(self.tables.name("early_ops"), self.tables.own("e"), sql.Literal(f"{age.total_seconds()} seconds"))
        return self.connection.execute(query).rowcount

    # ------------------------------------------------------------ the table

    def _write(self, which: str) -> Outcome:
        entity = self.entity
        target, fields = entity.target.name.sql, entity.fields
        chosen = sql.SQL(which)
        same = entity.same_key("w", "t")
        deleted = self._change(
            "DELETE FROM {} t USING penstock_work w WHERE {} AND w.existed AND NOT w.alive AND {}", target, chosen, same
        )
        if self.cleared:
            deleted += self._change(
                "DELETE FROM {} t WHERE NOT EXISTS (SELECT FROM penstock_work w WHERE w.alive AND {})", target, same
            )
        self._check_all(deleted, "w.existed AND NOT w.alive", chosen, at_least=True)
        updated = 0
        if fields:
            sets = commas(sql.SQL("{} = {}").format(each.own, each.of("w")) for each in fields)
            now, new = commas(each.own_of("t") for each in fields), commas(each.of("w") for each in fields)
            updated = self._change(
                "UPDATE {} t SET {} FROM penstock_work w WHERE {} AND w.existed AND w.alive AND {} "
                "AND ROW({})::record *<> ROW({})::record",
                target,
                sets,
                chosen,
                same,
                now,
                new,
            )
        self._check_kept(chosen)
        is_always = any(each.column.identity == "a" for each in entity.columns)
        created = self._change(
            "INSERT INTO {} ({}) {}SELECT {} FROM penstock_work w WHERE {} AND w.alive AND NOT w.existed",
            target,
            commas(each.own for each in entity.columns),
            sql.SQL("OVERRIDING SYSTEM VALUE " if is_always else ""),
            commas(each.of("w") for each in entity.columns),
            chosen,
        )
        self._check_all(created, "w.alive AND NOT w.existed", chosen)
        concerned = self._count("NOT (w.alive AND NOT w.existed) AND NOT (w.existed AND NOT w.alive)", chosen)
        return Outcome(created=created, updated=updated, deleted=deleted, equal=concerned - updated)

    def _check_kept(self, chosen: sql.Composable) -> None:
        """Another session may have deleted a row in the meantime: then the slice is folded again."""
        row = self.connection.execute(
            sql.SQL(
                "SELECT EXISTS (SELECT FROM penstock_work w WHERE {} AND w.existed AND w.alive "
                "AND NOT EXISTS (SELECT FROM {} t WHERE {}))"
            ).format(chosen, self.entity.target.name.sql, self.entity.same_key("w", "t"))
        ).fetchone()
        if row and row[0]:
            raise psycopg.errors.SerializationFailure("a row was deleted by another session during the slice")

    def _check_all(self, done: int, which: str, chosen: sql.Composable, *, at_least: bool = False) -> None:
        """Rows that were not written, although they should be, are a trigger's or another session's doing."""
        expected = self._count(which, chosen)
        if done == expected or (at_least and done > expected):
            return
        check_not_suppressed(self.connection, self.entity.target, expected - done, expected)
        raise psycopg.errors.SerializationFailure("rows were changed by another session during the slice")

    def _change(self, statement: str, *parts: sql.Composable, **named: sql.Composable) -> int:
        return self.connection.execute(sql.SQL(statement).format(*parts, **named)).rowcount

    def _count(self, which: str, chosen: sql.Composable) -> int:
        query = sql.SQL("SELECT count(*) FROM penstock_work w WHERE {} AND {}").format(sql.SQL(which), chosen)
        row = self.connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _find_bad_key(self) -> str:
        """The key of a row that the table rejects: entities are tried in halves."""
        row = self.connection.execute("SELECT min(eid), max(eid) + 1 FROM penstock_work").fetchone()
        low, high = row or (0, 0)
        self.connection.execute("SAVEPOINT penstock_search")
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_bad(low, middle):
                high = middle
            else:
                low = middle
        is_found = self._is_bad(low, low + 1)
        self.connection.execute("ROLLBACK TO SAVEPOINT penstock_search")
        if not is_found:
            return ""  # only several together are rejected
        names = [each.name for each in self.entity.key]
        shown = commas(
            sql.SQL("left({}, {})").format(each.spelled("w"), sql.Literal(_SHOWN_CHARACTERS))
            for each in self.entity.key
        )
        found = self.connection.execute(
            sql.SQL("SELECT {} FROM penstock_work w WHERE eid = {}").format(shown, sql.Literal(low))
        ).fetchone()
        return ", ".join(f"{name}={value}" for name, value in zip(names, found or (), strict=False))

    def _is_bad(self, low: int, high: int) -> bool:
        """Whether the table rejects one of some entities; those that it takes stay written until the search ends."""
        try:
            with self.connection.transaction():
                self._write(f"w.eid >= {int(low)} AND w.eid < {int(high)}")
                self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_row_error(error):
                raise
            return True
        return False

    # ------------------------------------------------------------ early ops

    def _write_early(self) -> None:
        entity, early = self.entity, self.tables.name("early_ops")
        key = entity.key_texts("w")
        # By their places: see give_values.sql.
        self._change(
            "DELETE FROM {early} e WHERE e.ctid = ANY (ARRAY(SELECT l.place FROM penstock_work w CROSS JOIN LATERAL "
            "(SELECT e.ctid AS place FROM {early} e WHERE {own} AND e.key = {key} LIMIT 1) l WHERE w.was_early))",
            early=early,
            own=self.tables.own("e"),
            key=key,
        )
        names = sql.Literal([each.name for each in entity.scalars])
        texts = commas(each.spelled("w") for each in entity.scalars)
        multi: sql.Composable = sql.SQL("'{{}}'::jsonb").format()
        for each in entity.multi:
            multi += sql.SQL(
                " || CASE WHEN cardinality({own}) > 0 THEN jsonb_build_object({name}::text, to_jsonb({own}::text[])) "
                "ELSE '{{}}' END"
            ).format(own=each.of("w"), name=sql.Literal(each.name))
        self.connection.execute(
            load_statement(__package__, "keep_early").format(
                early=early,
                pipeline=sql.Literal(self.tables.pipeline),
                stream=sql.Literal(self.tables.stream),
                key=key,
                names=names,
                texts=texts,
                multi=multi,
                known=is_known(entity),
            )
        )
