"""Rows of a Postgres table as a comparison sees them: counts, checksums and digests by key. See `ports.comparing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.core.comparing import Summary
from penstock.core.ranges import Key, Range
from penstock.core.types import Decimal, List, Plain, Type
from penstock.links.postgres.literals import row_of, typed_literal

_PRINTED = (
    Plain.BOOL,
    Plain.INT8,
    Plain.INT16,
    Plain.INT32,
    Plain.INT64,
    Plain.UINT8,
    Plain.UINT16,
    Plain.UINT32,
    Plain.FLOAT32,
    Plain.FLOAT64,
    Plain.DATE,
)
#: types whose values both sides order alike
_ORDERED = (
    *(Plain.INT8, Plain.INT16, Plain.INT32, Plain.INT64, Plain.UINT8, Plain.UINT16, Plain.UINT32),
    *(Plain.DATE, Plain.TIMESTAMP, Plain.TIMESTAMPTZ),
)
_TEXTS = ("text", "character varying")
#: rows that are compared at once, where an index finds them: progress is reported in between
WINDOW_ROWS = 1_000_000
#: keys that one statement looks at
LOOK_KEYS = 1000


def canonical_text(value: sql.Composable, type_: Type) -> sql.Composed | None:
    """The text of a value by which it is compared, as SQL; None: values of this type are not compared."""
    if type_ in _PRINTED:
        return sql.SQL("{}::text").format(value)
    if isinstance(type_, Decimal):
        return sql.SQL(
            "CASE WHEN strpos({0}::text, '.') > 0 THEN rtrim(rtrim({0}::text, '0'), '.') ELSE {0}::text END"
        ).format(value)
    if type_ is Plain.TIME:
        return sql.SQL("to_char({}, 'HH24:MI:SS.US')").format(value)
    if type_ in (Plain.TIMESTAMP, Plain.TIMESTAMPTZ):
        return sql.SQL("to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')").format(value)
    if type_ is Plain.BINARY:
        return sql.SQL("encode({}, 'hex')").format(value)
    if type_ in (Plain.STRING, Plain.JSON) or isinstance(type_, List):
        # By the type's own output function: a cast to text is another for some types.
        return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END").format(value)
    return None


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of the key, as SQL."""

    #: the text of its value
    text: sql.Composed
    #: what the rows are ordered by
    order: sql.Composable
    #: what one value is found by
    found_by: sql.Composable
    #: the type of a literal that is compared with `order`, and with `found_by`
    order_type: str
    found_type: str
    #: an index on the column is in this order
    native: bool

    @classmethod
    def of(cls, column: sql.Composable, type_: Type, postgres_type: str) -> KeyPart | None:
        """From a column and its Postgres type without a modifier; None: its values have no common order."""
        text = canonical_text(column, type_)
        if text is None:
            return None
        if type_ in _ORDERED or isinstance(type_, Decimal) or postgres_type == "uuid":
            return cls(text, column, column, postgres_type, postgres_type, True)
        if type_ not in (Plain.STRING, Plain.JSON):
            return None
        # Two servers may sort strings differently: bytes are the same everywhere.
        ordered = sql.SQL('concat({}) COLLATE "C"').format(column)
        if postgres_type in _TEXTS:
            return cls(text, sql.SQL('{} COLLATE "C"').format(column), column, "text", postgres_type, False)
        return cls(text, ordered, ordered, "text", "text", False)


@dataclass(frozen=True)
class TableRows:
    """The rows of one table that meet a condition."""

    run: Callable[[sql.Composed], Sequence[tuple[Any, ...]]]
    #: what stands after FROM, with the alias `t`
    relation: sql.Composable
    #: the rows that are compared
    condition: sql.Composable
    key: Sequence[KeyPart]
    #: the texts of the other columns
    values: Sequence[sql.Composed]
    #: the key has an index
    indexed: bool
    #: rows that do not meet the condition are looked at too: their keys exist
    sees_all: bool = False

    @property
    def window_rows(self) -> int | None:
        return WINDOW_ROWS if self.indexed and all(part.native for part in self.key) else None

    def summarize(self, range_: Range) -> Summary:
        query = sql.SQL(
            "SELECT count(*), coalesce(sum(('x' || left(d, 15))::bit(60)::bigint), 0)::text "
            "FROM (SELECT {} AS d FROM {} WHERE {}) x"
        ).format(self._digest, self.relation, self._within(range_))
        [[rows, checksum]] = self.run(query)
        return Summary(rows, checksum)

    def find_cuts(self, range_: Range, pieces: int) -> Sequence[Key]:
        query = sql.SQL(
            "SELECT {names} FROM (SELECT {texts}, row_number() OVER (ORDER BY {order}) AS n, count(*) OVER () AS c "
            "FROM {relation} WHERE {within}) x WHERE n % greatest(1, c / {pieces}) = 0 AND n < c ORDER BY n"
        ).format(
            names=self._names,
            texts=self._texts,
            order=self._order,
            relation=self.relation,
            within=self._within(range_),
            pieces=sql.Literal(pieces),
        )
        return list(dict.fromkeys(tuple(row) for row in self.run(query)))

    def find_end(self, after: Key | None, rows: int) -> Key | None:
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET {} LIMIT 1").format(
            self._texts, self.relation, self._within(Range(after, None)), self._order, sql.Literal(rows - 1)
        )
        return next((tuple(row) for row in self.run(query)), None)

    def list_digests(self, range_: Range) -> dict[Key, str]:
        return self._digests(self._within(range_))

    def look(self, keys: Sequence[Key]) -> dict[Key, str | None]:
        found: dict[Key, str | None] = {}
        for first in range(0, len(keys), LOOK_KEYS):
            some = keys[first : first + LOOK_KEYS]
            which = sql.SQL("{} IN ({})").format(
                row_of([part.found_by for part in self.key]),
                sql.SQL(", ").join(
                    row_of([typed_literal(text, part.found_type) for part, text in zip(self.key, key, strict=True)])
                    for key in some
                ),
            )
            if self.sees_all:
                query = sql.SQL("SELECT DISTINCT {} FROM {} WHERE {}").format(self._texts, self.relation, which)
                found |= dict.fromkeys(map(tuple, self.run(query)))
            found |= self._digests(sql.SQL("{} AND {}").format(self.condition, which))
        return found

    def close(self) -> None:
        return None

    def _digests(self, which: sql.Composed) -> dict[Key, str]:
        """The digest of each key. A key with several rows has all their digests: it differs from any single row."""
        query = sql.SQL(
            "SELECT {names}, string_agg(d, ',' ORDER BY d) FROM (SELECT {texts}, {digest} AS d FROM {relation} "
            "WHERE {which}) x GROUP BY {names}"
        ).format(names=self._names, texts=self._texts, digest=self._digest, relation=self.relation, which=which)
        return {tuple(row[:-1]): row[-1] for row in self.run(query)}

    # ------------------------------------------------------------ pieces of SQL

    @property
    def _digest(self) -> sql.Composed:
        texts = [part.text for part in self.key] + list(self.values)
        pieces = [sql.SQL("coalesce(length({0}) || ':' || {0}, '-')").format(text) for text in texts]
        return sql.SQL("left(encode(sha256(convert_to({}, 'UTF8')), 'hex'), 32)").format(sql.SQL(" || ").join(pieces))

    @property
    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(f"k{place}") for place in range(len(self.key)))

    @property
    def _texts(self) -> sql.Composed:
        named = (sql.SQL("{} AS {}").format(part.text, sql.Identifier(f"k{n}")) for n, part in enumerate(self.key))
        return sql.SQL(", ").join(named)

    @property
    def _order(self) -> sql.Composed:
        return sql.SQL(", ").join(part.order for part in self.key)

    def _within(self, range_: Range) -> sql.Composed:
        conditions: list[sql.Composable] = [self.condition]
        for sign, key in ((">", range_.after), ("<=", range_.upto)):
            if key is not None:
                literals = [typed_literal(text, part.order_type) for part, text in zip(self.key, key, strict=True)]
                conditions.append(
                    sql.SQL("{} {} {}").format(
                        row_of([part.order for part in self.key]), sql.SQL(sign), row_of(literals)
                    )
                )
        return sql.SQL(" AND ").join(conditions)
