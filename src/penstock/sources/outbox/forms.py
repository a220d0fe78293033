"""How a value of each Postgres type stands in a document, and when two of them differ.

Numbers, booleans and times are JSON's own; everything else is the text that the server prints, under fixed settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from psycopg import sql

from penstock.core.types import Decimal, Plain, Type
from penstock.links.postgres.types import choose_form, without_modifier


class Spelling(Enum):
    """What a value becomes in JSON."""

    #: to_jsonb of the value
    OWN = "own"
    #: to_jsonb of the value as bigint
    BIGINT = "bigint"
    #: the value cast to text
    CAST = "cast"
    #: what the type's output function prints
    PRINTED = "printed"


_OWN: Mapping[str, Type] = {
    "boolean": Plain.BOOL,
    "smallint": Plain.INT16,
    "integer": Plain.INT32,
    "bigint": Plain.INT64,
    "real": Plain.FLOAT32,
    "double precision": Plain.FLOAT64,
    "date": Plain.DATE,
    "timestamp without time zone": Plain.TIMESTAMP,
    "timestamp with time zone": Plain.TIMESTAMPTZ,
}
_TEXTS = frozenset({"text", "character varying", "character", "bpchar", "name"})
INTEGERS = frozenset({"smallint", "integer", "bigint"})
#: settings that the text of a type depends on; types that are not listed, and not simple, depend on all
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "timestamp with time zone": ("TimeZone",),
    "bytea": ("bytea_output",),
    "interval": ("IntervalStyle",),
    "money": ("lc_monetary",),
}
_SIMPLE = frozenset({"uuid", "enum", "numeric", "json", "jsonb", "oid", "inet", "cidr", "macaddr", "xid8", "xml"})
#: fixed for a function whose values depend on them
FIXED_SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "extra_float_digits": "1",
}


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one Postgres type stand in documents."""

    #: the type behind domains, as `format_type` spells it, without a modifier
    base: str
    #: the type of the field, for sinks
    type: Type
    spelling: Spelling

    @property
    def is_text(self) -> bool:
        return self.base in _TEXTS

    @property
    def is_integer(self) -> bool:
        return self.base in INTEGERS

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that the text of a value depends on."""
        if self.base in _SETTINGS:
            return _SETTINGS[self.base]
        simple = self.base in _OWN or self.base in _TEXTS or self.base in _SIMPLE
        return () if simple else tuple(FIXED_SETTINGS)

    def json(self, value: sql.Composable) -> sql.Composed:
        """The value as jsonb, as SQL; SQL's NULL becomes NULL."""
        if self.spelling is Spelling.OWN:
            return sql.SQL("to_jsonb({})").format(value)
        if self.spelling is Spelling.BIGINT:
            return sql.SQL("to_jsonb({}::bigint)").format(value)
        return sql.SQL("to_jsonb({})").format(self._text(value))

    def identifier_json(self, value: sql.Composable) -> sql.Composed:
        """The value as a key, a value of a multi-value field or of a filter: an integer, a boolean or a string."""
        if self.is_text or self.is_integer or self.base == "boolean" or self.spelling is Spelling.BIGINT:
            return self.json(value)
        # A float is never one: two producers may spell a number differently.
        return sql.SQL("to_jsonb({} #>> '{{}}')").format(self.json(value))

    def differ(self, one: sql.Composable, other: sql.Composable) -> sql.Composed:
        """Whether two values differ, as SQL; never NULL. As exact as what a document says of them."""
        if self.is_text:
            # A collation may call different texts equal.
            return sql.SQL('({} COLLATE "C" IS DISTINCT FROM {} COLLATE "C")').format(one, other)
        if self.spelling in (Spelling.OWN, Spelling.BIGINT) or self.base == "uuid":
            return sql.SQL("({} IS DISTINCT FROM {})").format(one, other)
        texts = (self._text(one), self._text(other))
        return sql.SQL('({} COLLATE "C" IS DISTINCT FROM {} COLLATE "C")').format(*texts)

    def _text(self, value: sql.Composable) -> sql.Composed:
        if self.spelling is Spelling.CAST:
            return sql.SQL("{}::text").format(value)
        # Not IS NOT NULL: a composite is its members there. By the output function: a cast to text may be another.
        return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END").format(value)


def form_of(type_: str, base: str | None = None) -> Form:
    """The form of a column. `base`: the type behind a domain, or the kind of a type that is not built in."""
    spelled = base or type_
    name = without_modifier(spelled)
    if name in _OWN:
        return Form(name, _OWN[name], Spelling.OWN)
    if name in _TEXTS:
        return Form(name, Plain.STRING, Spelling.OWN)
    if name == "oid":
        return Form(name, Plain.INT64, Spelling.BIGINT)
    if name == "numeric":
        exact = choose_form(spelled).type
        return Form(name, exact if isinstance(exact, Decimal) else Plain.STRING, Spelling.CAST)
    if name in ("json", "jsonb", "uuid"):
        return Form(name, Plain.STRING, Spelling.CAST)
    return Form(name, Plain.STRING, Spelling.PRINTED)
