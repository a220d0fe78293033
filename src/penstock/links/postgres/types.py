"""Which Arrow type each Postgres type becomes, or that it travels as the server's text.

The table below has every built-in type that a column can have, and every kind of type that users and extensions make.
A domain is what it is made of, an array a list of its elements. Types are named as pyarrow prints them, so that
planning need not import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Form:
    """How a column of one Postgres type travels."""

    #: the Arrow type, as pyarrow prints it
    arrow: str
    #: what the server is asked for is what it prints: the driver has no exact Arrow form for the type
    printed: bool = False
    #: the built-in type that the server is asked to cast to first; None: its own
    cast: str | None = None
    #: the least and greatest value that the Arrow type, and everyone who reads it, can hold; None: every one
    bounds: tuple[str, str] | None = None
    #: of an array that becomes a list: how its elements travel
    element: Form | None = None
    #: what stands between elements when an array of the type is printed is no comma, or not known
    odd_delimiter: bool = False

    @property
    def misfits(self) -> bool:
        """Whether the Postgres type has values that the Arrow type cannot hold."""
        return self.bounds is not None or self.element is not None or self.arrow.startswith("decimal128")


TEXT = Form("string", printed=True)

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
    "boolean": Form("bool"),
    "smallint": Form("int16"),
    "integer": Form("int32"),
    "bigint": Form("int64"),
    "real": Form("float"),
    "double precision": Form("double"),
    "text": Form("string"),
    "character varying": Form("string"),
    # `character` alone is a character(1).
    "character": Form("string", cast="bpchar"),
    "bpchar": Form("string"),
    "name": Form("string"),
    "json": Form("string"),
    "jsonb": Form("string"),
    "bytea": Form("binary"),
    # Unsigned, of 32 bits; the driver would give it a sign.
    "oid": Form("int64", cast="bigint"),
    "date": Form("date32[day]", bounds=("0001-01-01", "9999-12-31")),
    "time without time zone": Form("time64[us]", bounds=("00:00:00", "23:59:59.999999")),
    "timestamp without time zone": Form("timestamp[us]", bounds=("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")),
    "timestamp with time zone": Form(
        "timestamp[us, tz=UTC]", bounds=("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00")
    ),
    **dict.fromkeys((name.strip() for name in _PRINTED.split(";")), TEXT),
    "box": Form("string", printed=True, odd_delimiter=True),
    "extension": Form("string", printed=True, odd_delimiter=True),
}

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_INTERVAL = re.compile(r"interval( (year|month|day|hour|minute|second)( to (month|hour|minute|second))?)?")
#: a modifier; quoted names, which may look like one, are passed over
_MODIFIER = re.compile(r'("(?:[^"]|"")*")|\([^)]*\)')
_ARRAYS = re.compile(r"(\[\])+$")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_LIST = re.compile(r"list<item: (.+)>")
#: what a declared numeric can hold and a decimal cannot, as Postgres prints it
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
#: the most digits that decimal128 holds, and an Iceberg decimal
MOST_DIGITS = 38


def bare(type_: str) -> str:
    """The type without its modifier: `timestamp(3) with time zone` is a `timestamp with time zone`."""
    return _MODIFIER.sub(lambda found: found[1] or "", type_)


def known(type_: str) -> bool:
    """Whether the table has a type, or an array of it. A newer server's types, which it does not have, are text."""
    return _name(_ARRAYS.sub("", type_)) in FORMS


def form(type_: str, *, arrays: str = "list", unfit: str = "fail") -> Form:
    """How a type travels, as a stream is configured.

    The type is a built-in one as `format_type` spells it, or the kind of another; a domain is given as what it is
    made of (`base` of a column).
    """
    chosen = _form(type_)
    as_text = (chosen.element and arrays == "text") or (chosen.misfits and unfit == "text")
    return TEXT if as_text else chosen


def read_as(type_: str, arrow: str) -> Form:
    """How a type travels that is to become a given Arrow type; ValueError if it never does."""
    for candidate in (_form(type_), TEXT):
        if candidate.arrow == arrow:
            return candidate
    raise ValueError(f"a Postgres {type_} does not become {arrow}")


def _form(type_: str) -> Form:
    if type_.endswith("[]"):
        return _list(_form(type_.removesuffix("[]")))
    numeric = _NUMERIC.fullmatch(type_)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2])
        # Postgres allows scales below 0 and above the precision; such numbers stay text.
        if not 0 <= scale <= precision <= MOST_DIGITS:
            return TEXT
        # The driver would make text of them too, at three times what it costs the server.
        return Form(f"decimal128({precision}, {scale})", cast="text")
    return FORMS.get(_name(type_), TEXT)


def _list(element: Form) -> Form:
    """An array; one whose print cannot be told into elements travels as it is printed."""
    if element.odd_delimiter or element.element:
        return TEXT
    return Form(f"list<item: {element.arrow}>", element=element)


def _name(type_: str) -> str:
    name = bare(type_)
    return "interval" if _INTERVAL.fullmatch(name) else name


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type that pyarrow prints as `name`; ValueError for one that this map never gives."""
    import pyarrow as pa

    items = _LIST.fullmatch(name)
    if items:
        return pa.list_(arrow_type(items[1]))
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    known_ = (
        *(pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()),
        *(pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    )
    for candidate in known_:
        if str(candidate) == name:
            return candidate
    raise ValueError(f"{name!r} is no Arrow type that a Postgres column becomes")
