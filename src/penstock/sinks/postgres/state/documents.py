"""Judge the documents of a slice, and take them apart into ops, in temporary tables of its transaction.

A test in SQL passes documents that are valid and understood. The few others are judged by the reference fold. Then
values are tried as the table's columns read them. What is refused is in `penstock_refused`, with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.ops import Row, State, fold, header_refusal
from penstock.core.sizes import count_noun
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.failures import explain_value_error, is_row_error
from penstock.sinks.postgres.quarantine import OPS
from penstock.sinks.postgres.staging import PLACE, Staging
from penstock.sinks.postgres.state.fields import VALUE, Entity, Field

#: documents that are judged at a time
JUDGED_AT_ONCE = 10_000
_UNREADABLE = "it is not JSON that Postgres can read"

#: position, number of the op in its document from 1 (0: the document), number in its filter from 1 (0: the op itself)
Place = tuple[int, int, int]


@dataclass(frozen=True)
class Documents:
    """The documents of one slice."""

    connection: Connection
    entity: Entity
    staging: Staging
    #: of each part, in their order: the number of its attempt, and its rows
    parts: Sequence[tuple[int, int]]

    def prepare(self) -> None:
        """Judge the documents, and list the ops that concern many entities."""
        self.connection.execute(
            "CREATE TEMPORARY TABLE penstock_refused (pos bigint, n integer, inner_n integer, code text, reason text) "
            "ON COMMIT DROP"
        )
        self._create_documents()
        self._judge()
        self._execute("streams", tables=sql.Literal([each.table for each in self.entity.fan_outs]))
        self._execute("pieces")
        self._refuse_values("penstock_pieces", self.entity.fields, after=self._forget_pieces)
        texts = self.entity.pick([each for each in self.entity.fields if not each.is_text], "x.field", what="spell")
        self.connection.execute(sql.SQL("UPDATE penstock_pieces x SET value = {}").format(texts))

    def list_ops(self, barriers: Sequence[int], *, one_by_one: bool) -> None:
        """List the ops on single entities. `barriers`: positions that cut the slice into segments."""
        self._create_heads(barriers, one_by_one=one_by_one)
        self._execute("ops")
        self._refuse_values("penstock_ops", self.entity.fields, after=self._forget_ops)
        for name in ("heads", "ops"):
            if barriers or one_by_one:
                self.connection.execute(f"CREATE INDEX ON pg_temp.penstock_{name} (seg, round)".encode())
            self.connection.execute(f"ANALYZE pg_temp.penstock_{name}".encode())

    def quarantine(self, schema: str, **about: Any) -> int:
        """Put what was refused into the quarantine; returns how much it is."""
        query = load_statement(__package__, "quarantine").format(
            schema=sql.Identifier(schema),
            staging=self.staging.sql,
            place=sql.Identifier(PLACE),
            columns=sql.Literal(OPS),
            **{name: sql.Literal(value) for name, value in about.items()},
        )
        return self.connection.execute(query).rowcount

    # ------------------------------------------------------------ judging

    def _create_documents(self) -> None:
        places, first = [], 0
        for attempt, rows in self.parts:
            places.append(sql.SQL("({}::bigint, {}::bigint)").format(sql.Literal(attempt), sql.Literal(first)))
            first += rows
        texts = {
            name: sql.SQL("{}::text[]").format(sql.Literal([each.name for each in fields]))
            for name, fields in (("scalars", self.entity.scalars), ("multi", self.entity.multi))
        }
        good = load_statement(__package__, "good").format(
            key=self._key_test(), value=_is_scalar("o -> 'value'"), fan_out=self._fan_out_test(), **texts
        )

        def create(document: str) -> None:
            self._execute(
                "documents",
                good=good,
                place=sql.Identifier(PLACE),
                staging=self.staging.sql,
                parts=sql.SQL(", ").join(places),
                document=sql.SQL(document),
            )

        if not self._try(lambda: create("x.document::jsonb")):
            self.connection.execute(load_statement(__package__, "parse").format())
            create("pg_temp.penstock_json(x.document)")
            self.connection.execute("DROP FUNCTION pg_temp.penstock_json(text)")
        self.connection.execute("ANALYZE pg_temp.penstock_documents (pos, good)")

    def _key_test(self) -> sql.Composable:
        if len(self.entity.key) == 1:
            return sql.SQL("jsonb_typeof(d.doc -> 'key') <> 'boolean' AND {}").format(_is_scalar("d.doc -> 'key'"))
        parts = [
            sql.SQL("jsonb_typeof({0}) <> 'boolean' AND {1}").format(sql.SQL(part), _is_scalar(part))
            for part in (f"d.doc -> 'key' -> {number}" for number in range(len(self.entity.key)))
        ]
        return sql.SQL(
            "CASE WHEN jsonb_typeof(d.doc -> 'key') = 'array' THEN jsonb_array_length(d.doc -> 'key') = {} AND {} END"
        ).format(sql.Literal(len(self.entity.key)), sql.SQL(" AND ").join(parts))

    def _fan_out_test(self) -> sql.Composable:
        cases = [
            sql.SQL("WHEN {} THEN {}").format(
                sql.Literal(each.table),
                load_statement(__package__, "good_fan_out").format(
                    match=sql.SQL("{}::jsonb").format(sql.Literal(json.dumps(each.match[0]))),
                    value=_is_scalar("o -> 'where' -> 'eq'"),
                    fields=sql.SQL("{}::text[]").format(sql.Literal(list(each.fields))),
                ),
            )
            for each in self.entity.fan_outs
            if len(each.match) == 1
        ]
        if not cases:
            return sql.SQL("false")
        return sql.SQL("CASE d.doc ->> 'table' {} ELSE false END").format(sql.SQL(" ").join(cases))

    def _judge(self) -> None:
        """Judge the documents that the test did not pass; those that can be applied, in part too, are good then."""
        query = sql.SQL(
            "SELECT d.pos, x.document, d.doc IS NULL FROM penstock_documents d JOIN {} x ON x.{} = d.place "
            "WHERE NOT d.good ORDER BY d.pos"
        ).format(self.staging.sql, sql.Identifier(PLACE))
        judged = False
        with self.connection.cursor(name="penstock_judged") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(JUDGED_AT_ONCE):
                judged = True
                found = [each for row in rows for each in self._refusals(*row)]
                with self.connection.cursor().copy(
                    "COPY pg_temp.penstock_refused (pos, n, inner_n, code, reason) FROM STDIN"
                ) as copy:
                    for (pos, n, inner), reason in found:
                        copy.write_row((pos, n, inner, "", reason))
        if judged:
            self.connection.execute("ANALYZE pg_temp.penstock_refused")
            self.connection.execute(
                "UPDATE penstock_documents d SET good = true WHERE NOT d.good AND NOT EXISTS "
                "(SELECT FROM penstock_refused r WHERE r.pos = d.pos AND r.n = 0)"
            )

    def _refusals(self, pos: int, text: str | None, is_unreadable: bool) -> Iterator[tuple[Place, str]]:
        """What is refused of one document, as the reference does it."""
        try:
            document = json.loads(text) if text is not None else None
        except (ValueError, RecursionError):
            is_unreadable, document = True, None
        if is_unreadable and text is not None:
            yield (pos, 0, 0), _UNREADABLE
            return
        whole = header_refusal(document) or self._key_refusal(document)
        if whole is not None or not isinstance(document, dict):
            yield (pos, 0, 0), whole or ""
            return
        quarantined = fold(State(), self.entity.layout.shape, [Row(pos, document)]).quarantined
        reasons = {id(each.op): each.reason for each in quarantined}
        for n, op in enumerate(document["ops"], start=1):
            if id(op) in reasons:
                yield (pos, n, 0), reasons[id(op)]
            elif isinstance(op, dict) and op.get("op") == "query_op_set":
                for inner, each in enumerate(op["ops"], start=1):
                    if id(each) in reasons:
                        yield (pos, n, inner), reasons[id(each)]

    def _key_refusal(self, document: Any) -> str | None:
        """Why a valid key is not one of this entity."""
        if "key" not in document:
            return None
        key = document["key"]
        given, wanted = len(key) if isinstance(key, list) else 1, len(self.entity.key)
        if given == wanted:
            return None
        names = ", ".join(field.name for field in self.entity.key)
        return f"`key` has {count_noun(given, 'part')}, and the key of the entity is ({names})"

    # ------------------------------------------------------------ values

    def _create_heads(self, barriers: Sequence[int], *, one_by_one: bool) -> None:
        keys = self.entity.key
        reads = [
            sql.SQL("{} AS {}").format(field.read(part), field.work)
            for field, part in zip(keys, self._key_parts(), strict=True)
        ]
        seg: sql.Composable = sql.SQL("0")
        if barriers:
            seg = sql.SQL("width_bucket(h.pos << 24, {}::bigint[])").format(sql.Literal(list(barriers)))
        names = self.entity.keys_of("g")
        one = sql.SQL("row_number() OVER (PARTITION BY {}, g.seg ORDER BY g.pos)").format(names)

        def create() -> None:
            self._execute(
                "heads",
                keys=self.entity.keys_of("h"),
                seg=seg,
                round=one if one_by_one else sql.SQL("0"),
                reads=sql.SQL(", ").join(reads),
            )

        loses = any(field.column.limited for field in keys)
        if loses or not self._try(create):
            parts = [
                sql.SQL(
                    "SELECT d.pos, 0 AS n, 0 AS inner_n, {} AS field, {} AS value FROM penstock_documents d "
                    "WHERE d.good AND d.doc ? 'key'"
                ).format(sql.Literal(field.number), part)
                for field, part in zip(keys, self._key_parts(), strict=True)
            ]
            relation = sql.SQL("({})").format(sql.SQL(" UNION ALL ").join(parts))
            self._mark_values(relation, keys)
            self.connection.execute(
                "UPDATE penstock_documents d SET good = false FROM penstock_refused r WHERE r.pos = d.pos AND r.n = 0"
            )
            create()

    def _key_parts(self) -> list[sql.Composable]:
        if len(self.entity.key) == 1:
            return [sql.SQL("d.doc ->> 'key'")]
        return [sql.SQL(f"d.doc -> 'key' ->> {number}") for number in range(len(self.entity.key))]

    def _refuse_values(self, table: str, fields: Sequence[Field], *, after: Callable[[], None]) -> None:
        """Refuse the ops of a table whose values their columns would not hold."""
        tried = [field for field in fields if not field.is_text]
        query = sql.SQL(
            "SELECT EXISTS (SELECT FROM {} x WHERE x.value IS NOT NULL AND x.field = ANY ({}::integer[]) AND {})"
        ).format(
            sql.Identifier("pg_temp", table),
            sql.Literal([field.number for field in tried]),
            self.entity.pick(tried, "x.field", what="misfit"),
        )
        found: list[bool] = []

        def look() -> None:
            row = self.connection.execute(query).fetchone()
            found.append(bool(row and row[0]))

        if tried and (not self._try(look) or found == [True]):
            self._mark_values(sql.Identifier("pg_temp", table), tried)
            after()

    def _mark_values(self, relation: sql.Composable, fields: Sequence[Field]) -> None:
        """Try each value by itself, and note those that do not fit."""
        cases = [
            sql.SQL("WHEN {} THEN PERFORM FROM unnest(given) x ({}) WHERE {};").format(
                sql.Literal(field.number), sql.Identifier(VALUE), field.misfit
            )
            for field in fields
        ]
        body = load_statement(__package__, "misfit").format(cases=sql.SQL(" ").join(cases))
        self.connection.execute(
            sql.SQL(
                "CREATE FUNCTION pg_temp.penstock_misfit(field integer, given text[]) RETURNS text "
                "LANGUAGE plpgsql AS {}"
            ).format(sql.Literal(body.as_string(self.connection)))
        )
        found = self.connection.execute(
            load_statement(__package__, "refuse_values").format(
                relation=relation, numbers=sql.Literal([field.number for field in fields])
            )
        ).fetchall()
        by_number = {str(field.number): field for field in fields}
        for code, number in found:
            field = by_number[number]
            self.connection.execute(
                "UPDATE penstock_refused SET reason = %s WHERE (code, reason) = (%s, %s)",
                [f"field '{field.name}' ({field.column.type}): {explain_value_error(code)}", code, number],
            )
        self.connection.execute("DROP FUNCTION pg_temp.penstock_misfit(integer, text[])")

    def _forget_pieces(self) -> None:
        """An op whose filter has such a value is refused whole."""
        for table in ("penstock_streams", "penstock_pieces"):
            self.connection.execute(
                sql.SQL(
                    "DELETE FROM {} x USING penstock_refused r WHERE r.pos = x.pos AND r.n = x.n AND r.inner_n = 0"
                ).format(sql.Identifier("pg_temp", table))
            )
        self.connection.execute(
            "DELETE FROM penstock_pieces x USING penstock_refused r "
            "WHERE r.pos = x.pos AND r.n = x.n AND r.inner_n = x.inner_n"
        )

    def _forget_ops(self) -> None:
        self.connection.execute("DELETE FROM penstock_ops x USING penstock_refused r WHERE r.pos = x.pos AND r.n = x.n")

    # ------------------------------------------------------------ statements

    def _execute(self, name: str, **holes: sql.Composable) -> None:
        if name in ("streams", "pieces", "ops"):
            fields = self.entity.fields
            holes["names"] = sql.Literal([field.name for field in fields])
            holes["numbers"] = sql.Literal([field.number for field in fields])
        self.connection.execute(load_statement(__package__, name).format(**holes))

    def _try(self, work: Callable[[], None]) -> bool:
        """Whether work succeeds; what it did is undone if a value is at fault."""
        try:
            with self.connection.transaction():
                work()
        except psycopg.Error as error:
            if not is_row_error(error):
                raise
            return False
        return True


def _is_scalar(value: str) -> sql.Composed:
    """Whether a JSON value is a string, an integer of 64 bits, true or false."""
    return load_statement(__package__, "scalar").format(sql.SQL(value))
