"""A lake table as a comparison sees it, by Spark: counts, checksums and digests by key. See `ports.comparing`.

One scan of the table writes the key and the digest of each row into Spark's own storage; ranges are asked there. Single
keys are looked up in the table itself, as it is then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import uuid4

from penstock.core.comparing import Summary
from penstock.core.ranges import Key, Range
from penstock.core.types import Decimal, Plain, Type
from penstock.lake import names
from penstock.lake.merge_statement import find_free_name, quote
from penstock.lake.merging import run_statement
from penstock.ports import ComparedColumn, Spark

#: the types of the table's columns in which a value has the text of the type that was delivered
_ALIKE: Mapping[Type, frozenset[str]] = {
    **dict.fromkeys((Plain.INT8, Plain.INT16, Plain.INT32, Plain.INT64), frozenset({"int", "long"})),
    **dict.fromkeys((Plain.UINT8, Plain.UINT16, Plain.UINT32), frozenset({"int", "long"})),
    **dict.fromkeys((Plain.STRING, Plain.JSON, Plain.TIME), frozenset({"string"})),
    Plain.BOOL: frozenset({"boolean"}),
    Plain.BINARY: frozenset({"binary"}),
    Plain.DATE: frozenset({"date"}),
    Plain.TIMESTAMP: frozenset({"timestamp"}),
    Plain.TIMESTAMPTZ: frozenset({"timestamptz"}),
}
#: what Spark casts a key's text to
_SPARK_TYPES: Mapping[str, str] = {
    "int": "int",
    "long": "bigint",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
#: timestamps are printed in UTC, whatever the session's time zone is
_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
#: keys that one statement looks at
LOOK_KEYS = 1000


def explain_difference(held: object, column: ComparedColumn) -> str | None:
    """Why a column of the table is not compared; None: it has the text of what was delivered. `held`: its type."""
    if held is None:
        return "the table does not have it"
    alike = _ALIKE.get(column.type, frozenset())
    if isinstance(held, str) and (held in alike or (isinstance(column.type, Decimal) and held.startswith("decimal"))):
        return None
    if column.type in (Plain.FLOAT32, Plain.FLOAT64):
        return "Spark prints floats differently"
    return f"it is {held if isinstance(held, str) else 'nested'} in the table"


def has_order(held: str) -> bool:
    """Whether Spark orders keys of this type as every other side does."""
    return held in (*_SPARK_TYPES, "string") or held.startswith("decimal")


@dataclass(frozen=True)
class SparkRows:
    """The current rows of a lake table."""

    spark: Spark
    #: as Spark names it
    table: str
    key: Sequence[ComparedColumn]
    values: Sequence[ComparedColumn]
    #: every column of the table with its type
    types: Mapping[str, object]
    #: a log of row versions: the newest one of each key counts
    appends: bool = False
    #: the column in which deletes are marked; None: they are not marked
    deleted_at: str | None = None
    _view: str = field(default_factory=lambda: f"penstock_compared_{uuid4().hex[:12]}")

    @property
    def window_rows(self) -> int | None:
        return None

    def summarize(self, range_: Range) -> Summary:
        [row] = self._ask(
            "select count(*), cast(coalesce(sum(cast(conv(substr(d, 1, 15), 16, 10) as decimal(20, 0))), 0) as string) "  # noqa: S608 (quoted)
            f"from {self._digested} where {self._within(range_)}"
        )
        return Summary(row[0], row[1])

    def find_cuts(self, range_: Range, pieces: int) -> Sequence[Key]:
        rows = self._ask(
            f"select {self._texts} from (select *, row_number() over (order by {self._order}) as n, "  # noqa: S608 (quoted)
            f"count(*) over () as c from {self._digested} where {self._within(range_)}) "
            f"where n % greatest(1, c div {pieces}) = 0 and n < c order by n"
        )
        return list(dict.fromkeys(tuple(row) for row in rows))

    def find_end(self, after: Key | None, rows: int) -> Key | None:
        found = self._ask(
            f"select {self._texts} from {self._digested} where {self._within(Range(after, None))} "  # noqa: S608 (quoted)
            f"order by {self._order} limit 1 offset {rows - 1}"
        )
        return next((tuple(row) for row in found), None)

    def list_digests(self, range_: Range) -> Mapping[Key, str]:
        return self._by_key(f"select * from {self._digested} where {self._within(range_)}")  # noqa: S608 (quoted)

    def look(self, keys: Sequence[Key]) -> Mapping[Key, str | None]:
        found: dict[Key, str | None] = {}
        for first in range(0, len(keys), LOOK_KEYS):
            some = keys[first : first + LOOK_KEYS]
            # By the first column alone, which Iceberg can prune by.
            literals = ", ".join(sorted({self._literal(0, key[0]) for key in some}))
            wanted = set(some)
            digests = self._by_key(self._statement(f"{quote(self.key[0].name)} in ({literals})"))
            found |= {key: digest for key, digest in digests.items() if key in wanted}
        return found

    def close(self) -> None:
        frame = self.__dict__.pop("_frame", None)
        if frame is not None:
            self.spark.session().catalog.dropTempView(self._view)
            frame.unpersist()

    def _by_key(self, rows: str) -> dict[Key, str]:
        """The digest of each key. A key with several rows has all their digests: it differs from any single row."""
        statement = (
            f"select {self._texts}, concat_ws(',', sort_array(collect_list(d))) from ({rows}) group by {self._texts}"  # noqa: S608 (quoted)
        )
        return {tuple(row[:-1]): row[-1] for row in self._ask(statement)}

    # ------------------------------------------------------------ statements

    @property
    def _digested(self) -> str:
        """The view with the digests of all rows, computed once and kept by Spark."""
        self._frame.createOrReplaceTempView(self._view)
        return self._view

    @cached_property
    def _frame(self) -> Any:
        return run_statement(self.spark.session(), self._statement("true"), _SETTINGS).persist()

    def _statement(self, condition: str) -> str:
        """Select the texts of each row's key (k0, k1, …), the values that order it (o0, o1, …) and its digest (d)."""
        row = find_free_name("held", self.types)
        alive = [condition]
        if names.DELETED in self.types:
            alive.append(f"not coalesce({row}.{names.DELETED}, false)")
        if self.deleted_at is not None and self.deleted_at in self.types:
            alive.append(f"{row}.{quote(self.deleted_at)} is null")
        source = f"{self.table} {row}"
        if self.appends:
            keys = ", ".join(quote(column.name) for column in self.key)
            place = find_free_name("place", self.types)
            source = (
                f"(select * from (select *, row_number() over (partition by {keys} order by {names.SEQ} desc) "  # noqa: S608 (quoted)
                f"as {place} from {self.table} where {condition}) where {place} = 1) {row}"
            )
        texts = [f"{self._text(column)} as k{n}" for n, column in enumerate(self.key)]
        orders = [f"{row}.{quote(column.name)} as o{n}" for n, column in enumerate(self.key)]
        pieces = [
            f"coalesce(concat(cast(length({text}) as string), ':', {text}), '-')"
            for text in (self._text(column) for column in (*self.key, *self.values))
        ]
        digest = f"substr(sha2(concat({', '.join(pieces)}), 256), 1, 32) as d"
        return f"select {', '.join([*texts, *orders, digest])} from {source} where {' and '.join(alive)}"  # noqa: S608 (quoted)

    def _text(self, column: ComparedColumn) -> str:
        name = quote(column.name)
        if column.type is Plain.BINARY:
            return f"lower(hex({name}))"
        text = f"cast({name} as string)"
        if column.type in (Plain.TIMESTAMP, Plain.TIMESTAMPTZ):
            return f"concat(substr({text}, 1, 19), '.', rpad(substr({text}, 21), 6, '0'))"
        if isinstance(column.type, Decimal):
            return f"if(instr({text}, '.') > 0, trim(trailing '.' from trim(trailing '0' from {text})), {text})"
        return text

    @property
    def _texts(self) -> str:
        return ", ".join(f"k{n}" for n in range(len(self.key)))

    @property
    def _order(self) -> str:
        return ", ".join(f"o{n}" for n in range(len(self.key)))

    def _within(self, range_: Range) -> str:
        sides = [(sign, key) for sign, key in ((">", range_.after), ("<=", range_.upto)) if key is not None]
        return " and ".join(self._compare(sign, key) for sign, key in sides) or "true"

    def _compare(self, sign: str, key: Key) -> str:
        """A comparison of the key with a bound, column by column."""
        literals = [self._literal(n, text) for n, text in enumerate(key)]
        condition = f"o{len(key) - 1} {sign} {literals[-1]}"
        for n in reversed(range(len(key) - 1)):
            condition = f"(o{n} {sign[0]} {literals[n]} or (o{n} = {literals[n]} and {condition}))"
        return condition

    def _literal(self, n: int, text: str) -> str:
        """A value of a key column. Strings are written as bytes: no character in them can end the literal."""
        held = str(self.types[self.key[n].name])
        value = f"decode(unhex('{text.encode().hex()}'), 'UTF-8')"
        if held == "string":
            return value
        return f"cast({value} as {_SPARK_TYPES.get(held, held)})"

    def _ask(self, statement: str) -> Collection[Any]:
        session = self.spark.session()
        frame = run_statement(session, statement, _SETTINGS)
        rows: Collection[Any] = self.spark.wait(frame.collect, failed=f"the comparison with {self.table} failed")
        return rows
