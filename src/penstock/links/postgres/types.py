"""Postgres' types and the vocabulary of `core`: what each Postgres type becomes, and what holds each type in Postgres.

The table below has every built-in type that a column can have, and every kind of type that users and extensions make.
A domain is what it is made of, an array a list of its elements. A type without an exact form travels as the server's
text. Does not import pyarrow: planning needs this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.types import Decimal, List, Plain, Type


@dataclass(frozen=True, slots=True)
class Form:
    """How a column of one Postgres type travels."""

    type: Type
    #: what the server is asked for is what it prints: the driver has no exact Arrow form for the type
    printed: bool = False
    #: the built-in type that the server is asked to cast to first; None: its own
    cast: str | None = None
    #: the least and greatest value that `type`, and every reader of it, can hold; None: every one
    bounds: tuple[str, str] | None = None
    #: of an array that becomes a list: how its elements travel
    element: Form | None = None
    #: what stands between elements when an array of the type is printed is no comma, or not known
    odd_delimiter: bool = False

    @property
    def misfits(self) -> bool:
        """Whether the Postgres type has values that `type` cannot hold."""
        return self.bounds is not None or self.element is not None or isinstance(self.type, Decimal)


TEXT = Form(Plain.STRING, printed=True)

_PRINTED = """
    uuid; numeric; money; interval; time with time zone; "bit"; bit; bit varying; "char"; xml; jsonpath;
    inet; cidr; macaddr; macaddr8; point; line; lseg; path; polygon; circle; tsvector; tsquery;
    xid; xid8; cid; tid; pg_lsn; pg_snapshot; txid_snapshot; refcursor; aclitem; int2vector; oidvector;
    regclass; regcollation; regconfig; regdictionary; regnamespace; regoper; regoperator; regproc; regprocedure;
    regrole; regtype; gtsvector; pg_node_tree; pg_ndistinct; pg_dependencies; pg_mcv_list; pg_brin_bloom_summary;
    pg_brin_minmax_multi_summary; enum; composite; range; multirange
"""

#: by the name that `format_type` gives without a modifier; types that users and extensions make, by their kind
FORMS: Mapping[str, Form] = {
    "boolean": Form(Plain.BOOL),
    "smallint": Form(Plain.INT16),
    "integer": Form(Plain.INT32),
    "bigint": Form(Plain.INT64),
    "real": Form(Plain.FLOAT32),
    "double precision": Form(Plain.FLOAT64),
    "text": Form(Plain.STRING),
    "character varying": Form(Plain.STRING),
    # `character` alone is a character(1).
    "character": Form(Plain.STRING, cast="bpchar"),
    "bpchar": Form(Plain.STRING),
    "name": Form(Plain.STRING),
    "json": Form(Plain.STRING),
    "jsonb": Form(Plain.STRING),
    "bytea": Form(Plain.BINARY),
    # Unsigned, of 32 bits; the driver would give it a sign.
    "oid": Form(Plain.INT64, cast="bigint"),
    "date": Form(Plain.DATE, bounds=("0001-01-01", "9999-12-31")),
    "time without time zone": Form(Plain.TIME, bounds=("00:00:00", "23:59:59.999999")),
    "timestamp without time zone": Form(Plain.TIMESTAMP, bounds=("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")),
    "timestamp with time zone": Form(
        Plain.TIMESTAMPTZ, bounds=("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00")
    ),
    **dict.fromkeys((name.strip() for name in _PRINTED.split(";")), TEXT),
    "box": Form(Plain.STRING, printed=True, odd_delimiter=True),
    "extension": Form(Plain.STRING, printed=True, odd_delimiter=True),
}

_NUMBERS = frozenset({"smallint", "integer", "bigint", "real", "double precision"})
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_INTERVAL = re.compile(r"interval( (year|month|day|hour|minute|second)( to (month|hour|minute|second))?)?")
#: a modifier; quoted names, which may look like one, are passed over
_MODIFIER = re.compile(r'("(?:[^"]|"")*")|\([^)]*\)')
_ARRAYS = re.compile(r"(\[\])+$")
#: what a declared numeric can hold and a decimal cannot, as Postgres prints it
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")
#: the most digits that a decimal of 128 bits holds, and an Iceberg decimal
MAX_DECIMAL_DIGITS = 38
#: the Postgres type that holds every value of a type, and in which the driver sends it
_HOLDS: Mapping[Type, str] = {
    Plain.BOOL: "boolean",
    **dict.fromkeys((Plain.INT8, Plain.INT16, Plain.UINT8), "smallint"),
    **dict.fromkeys((Plain.INT32, Plain.UINT16), "integer"),
    **dict.fromkeys((Plain.INT64, Plain.UINT32), "bigint"),
    Plain.FLOAT32: "real",
    Plain.FLOAT64: "double precision",
    **dict.fromkeys((Plain.STRING, Plain.JSON), "text"),
    Plain.BINARY: "bytea",
    Plain.DATE: "date",
    Plain.TIME: "time without time zone",
    Plain.TIMESTAMP: "timestamp without time zone",
    Plain.TIMESTAMPTZ: "timestamp with time zone",
}


def without_modifier(type_: str) -> str:
    """The type without its modifier: `timestamp(3) with time zone` is a `timestamp with time zone`."""
    return _MODIFIER.sub(lambda found: found[1] or "", type_)


def is_known_type(type_: str) -> bool:
    """Whether the table has a type, or an array of it. A newer server's types, which it does not have, are text."""
    return _name(_ARRAYS.sub("", type_)) in FORMS


def choose_form(type_: str, *, arrays: str = "list", unfit: str = "fail") -> Form:
    """How a type travels, as a stream is configured.

    The type is a built-in one as `format_type` spells it, or the kind of another; a domain is given as what it is
    made of (`base` of a column).
    """
    chosen = _form(type_)
    as_text = (chosen.element and arrays == "text") or (chosen.misfits and unfit == "text")
    return TEXT if as_text else chosen


def form_for(type_: str, wanted: Type) -> Form:
    """How a Postgres type travels that is to become `wanted`; ValueError if it never does."""
    for candidate in (_form(type_), TEXT):
        if candidate.type == wanted:
            return candidate
    raise ValueError(f"a Postgres {type_} does not become {wanted}")


def postgres_type(type_: Type) -> str | None:
    """The Postgres type that holds every value of a type; None: there is none."""
    if isinstance(type_, Decimal):
        fits = type_.scale >= 0 and type_.precision <= MAX_DECIMAL_DIGITS
        return f"numeric({type_.precision},{type_.scale})" if fits else None
    if isinstance(type_, List):
        item = None if isinstance(type_.item, List) else postgres_type(type_.item)
        return f"{item}[]" if item else None
    return _HOLDS.get(type_)


def number_type(type_: str) -> Type | None:
    """The type of a Postgres number; None: it is no number, or a numeric without a precision."""
    numeric = _NUMERIC.fullmatch(type_)
    if numeric:
        return Decimal(int(numeric[1]), int(numeric[2]))
    return FORMS[type_].type if type_ in _NUMBERS else None


def _form(type_: str) -> Form:
    if type_.endswith("[]"):
        return _list(_form(type_.removesuffix("[]")))
    numeric = _NUMERIC.fullmatch(type_)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2])
        # Postgres allows scales below 0 and above the precision; such numbers stay text.
        if not 0 <= scale <= precision <= MAX_DECIMAL_DIGITS:
            return TEXT
        # The driver would make text of them too, at three times what it costs the server.
        return Form(Decimal(precision, scale), cast="text")
    return FORMS.get(_name(type_), TEXT)


def _list(element: Form) -> Form:
    """An array; one whose print cannot be told into elements travels as it is printed."""
    if element.odd_delimiter or element.element:
        return TEXT
    return Form(List(element.type), element=element)


def _name(type_: str) -> str:
    name = without_modifier(type_)
    return "interval" if _INTERVAL.fullmatch(name) else name
