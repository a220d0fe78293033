"""Cuts a long range of a key by the server's statistics, without counting its rows.

Statistics are estimates. Every cut is a key that exists, so a wrong estimate only makes a slice larger or smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from penstock.core.ranges import Key, Range
from penstock.links.postgres.literals import load_statement, to_text, typed_literal
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.stream import PACKAGE, TableStream

if TYPE_CHECKING:
    from penstock.sources.postgres.keyset import SliceLimits

#: more rows are estimated
MAX_COUNTED_ROWS = 10_000
#: a table that was never analyzed counts as evenly spread if its numbers fill at least this share of their range
MIN_DENSITY = 0.25
#: a value that takes a larger share of a slice cannot be cut
MAX_VALUE_SHARE = 0.25
#: a column whose common values take a larger share of its rows cannot be cut
MAX_COMMON_SHARE = 0.5

_NUMBER = "({0})::float8"
# What a float8 cannot hold has no number: casting it would be an error.
_NUMERIC = "CASE WHEN {0} = 0 OR abs({0}) BETWEEN 1e-300 AND 1e300 THEN ({0})::float8 END"
_SINCE = "extract(epoch FROM {0})::float8"
_BITS = "('x' || left(replace(({0})::text, '-', ''), 13))::bit(52)::bigint::float8"
#: converts a value to a number that grows with it, by type
NUMBERS = {
    **dict.fromkeys(("smallint", "integer", "bigint", "real", "double precision"), _NUMBER),
    **dict.fromkeys(("date", "timestamp without time zone", "timestamp with time zone"), _SINCE),
    "numeric": _NUMERIC,
    "uuid": _BITS,
}
_WHOLE = "trunc({low}::numeric + ({high}::numeric - {low}::numeric) * {share})"
_MIXED = "{low} * (1 - {share}) + {high} * {share}"
_AFTER = "{low} + ({high} - {low}) * {share}::float8"
#: computes a value between two others, by type; see `_value_inside` for a uuid
_VALUES_BETWEEN = {
    **dict.fromkeys(("smallint", "integer", "bigint"), _WHOLE),
    **dict.fromkeys(("numeric", "real", "double precision"), _MIXED),
    "date": "{low} + (({high} - {low}) * {share})::int",
    "timestamp without time zone": _AFTER,
    "timestamp with time zone": _AFTER,
}
_INTEGERS = ("smallint", "integer", "bigint")
#: values without a distance to others
_ENDLESS = ("infinity", "Infinity", "NaN")


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a slice goes, and where it is cut into parts."""

    #: inner bounds, in order
    cuts: tuple[Key, ...]
    #: its end; None: the end of the range
    upto: Key | None
    #: rows to expect
    rows: int
    #: whether the rows were counted
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Bucket:
    """A range of values of the cursor, with the number of its rows."""

    low: str
    high: str
    rows: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The distribution of a range's rows over the first column of its key."""

    buckets: tuple[Bucket, ...]
    #: whether a value inside a bucket can be computed
    divisible: bool
    #: rows of the whole table, as the planner estimates them
    table: float = 0.0

    @property
    def rows(self) -> float:
        return sum(bucket.rows for bucket in self.buckets)

    def places(self, wanted: Sequence[float]) -> Iterator[tuple[Bucket, float]]:
        """For each number of rows, the bucket that reaches it and the share of that bucket."""
        buckets, passed = iter(self.buckets), 0.0
        bucket = next(buckets)
        for rows in wanted:
            while passed + bucket.rows < rows and (following := next(buckets, None)):
                passed, bucket = passed + bucket.rows, following
            share = min(1.0, max(0.0, (rows - passed) / bucket.rows)) if bucket.rows else 1.0
            yield bucket, share if self.divisible else 1.0


def estimate_extent(stream: TableStream, whole: Range, limits: SliceLimits) -> Extent | None:
    """Estimate how far the next slice of a range goes; None: the statistics are not sufficient."""
    histogram = _histogram(stream, whole, limits)
    if histogram is None:
        return None
    slices = max(1, round(histogram.rows / limits.most))
    each = histogram.rows / slices
    parts = max(1, min(limits.parts, int(each // limits.least)))
    wanted = [each * number / parts for number in range(1, parts + 1)]
    if slices == 1:
        wanted.pop()
    keys = _find_keys(stream, whole, list(histogram.places(wanted))) if wanted else []
    if slices == 1:
        # Rows that came after the statistics are overestimated; a range has no more rows than the table.
        return Extent(tuple(keys), None, round(min(each, histogram.table)))
    # No row lies so low: there may be any number above.
    return Extent(tuple(keys[:-1]), keys[-1], round(each)) if keys else None


def count_rows_after(stream: TableStream, after: Key | None) -> int:
    """Rows after a key: few are counted along the index, many are estimated."""
    content = stream.content
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} AS t WHERE {} ORDER BY {} LIMIT {}) x").format(
        content.table.sql, content.range_sql(Range(after, None)), content.ascending, sql.Literal(MAX_COUNTED_ROWS)
    )
    [[count]] = stream.rows(query)
    if count < MAX_COUNTED_ROWS:
        return int(count)
    if after is None:
        return stream.expected_rows()
    above = sql.SQL("{} > {}").format(content.cursor_sql, content.literals(after)[0])
    return max(int(count), stream.expected_rows(above))


def _histogram(stream: TableStream, whole: Range, limits: SliceLimits) -> Histogram | None:
    found, content = _ask_statistics(stream, whole), stream.content
    if found["first"] is None:
        return Histogram((), divisible=False)
    rows, type_ = float(stream.expected_rows()), without_modifier(content.key[0].type)
    if not found["buckets"]:
        span = found["last_number"] - found["lowest_number"] if type_ in _INTEGERS and len(content.key) == 1 else None
        if span is None or span * MIN_DENSITY > rows:
            return None
        # There are no more distinct integers than from the lowest to the last.
        share = _share(found["first_number"], found["last_number"], span)
        rows = min(rows, span + 1) * (share or 1.0)
        return Histogram((Bucket(found["first"], found["last"], rows),), divisible=True, table=rows)
    if (found["most_common"] or 0.0) * rows > limits.most * MAX_VALUE_SHARE:
        return None
    if (found["common"] or 0.0) > MAX_COMMON_SHARE:
        return None
    histogram = Histogram(tuple(_make_buckets(found, rows)), divisible=type_ in NUMBERS, table=rows)
    coarse = not histogram.divisible and max(bucket.rows for bucket in histogram.buckets) > limits.most
    return None if coarse else histogram


def _ask_statistics(stream: TableStream, whole: Range) -> dict[str, Any]:
    content = stream.content
    lead = content.key[0]
    number = sql.SQL(NUMBERS.get(without_modifier(lead.type), "NULL::float8"))
    query = load_statement(PACKAGE, "histogram").format(
        lead=content.cursor_sql,
        table=content.table.sql,
        whole=content.range_sql(whole),
        key=content.ascending,
        backwards=content.descending,
        type=sql.SQL(lead.type),
        schema=sql.Literal(content.table.schema),
        name=sql.Literal(content.table.name),
        column=sql.Literal(lead.column),
        regclass=sql.Literal(to_text(content.table.sql)),
        number_of_place=number.format(sql.SQL("b.place::") + sql.SQL(lead.type)),
        number_of_lowest=number.format(sql.SQL("ends.lowest")),
        number_of_first=number.format(sql.SQL("ends.first")),
        number_of_last=number.format(sql.SQL("ends.last")),
    )
    [[document]] = stream.rows(query)
    found: dict[str, Any] = document
    return found


def _make_buckets(found: Mapping[str, Any], rows: float) -> Iterator[Bucket]:
    """The buckets from the first value of the range to its last, over the histogram's bounds between them.

    Each bucket holds the same number of rows. Rows outside of all buckets came after the statistics: they are
    overestimated rather than underestimated, so that slices become smaller and not larger.
    """
    bucket = rows / found["buckets"]
    ends = ((found["first"], found["first_number"]), (found["last"], found["last_number"]))
    for low, high in pairwise((ends[0], *found["inside"], ends[1])):
        under = found["before"] if low is ends[0] else low
        over = found["behind"] if high is ends[1] else high
        if under and over:
            share = _share(low[1], high[1], _distance(under[1], over[1]))
            yield Bucket(low[0], high[0], bucket * (1.0 if share is None else min(1.0, share)))
        else:
            share = _share(low[1], high[1], found["span"]) or 0.0
            yield Bucket(low[0], high[0], min(rows, max(bucket, found["changed"] or 0, rows * share)))


def _distance(low: Any, high: Any) -> float | None:
    """The distance of two numbers; None if one is unknown, or not finite, which JSON has as a string."""
    known = all(isinstance(number, int | float) for number in (low, high))
    return float(high - low) if known else None


def _share(low: Any, high: Any, of: Any) -> float | None:
    """The share of a distance that lies between two numbers; None if it is unknown."""
    span = _distance(low, high)
    return span / of if span is not None and isinstance(of, int | float) and of else None


def _find_keys(stream: TableStream, whole: Range, places: Iterable[tuple[Bucket, float]]) -> list[Key]:
    """Existing keys at or below each of some places; fewer if two are the same."""
    content = stream.content
    values = [
        sql.SQL("({}, {})").format(sql.Literal(number), _value_inside(bucket, share, content.key[0].type))
        for number, (bucket, share) in enumerate(places)
    ]
    query = load_statement(PACKAGE, "probes").format(
        places=sql.SQL(", ").join(values),
        key=content.ascending,
        texts=content.key_texts,
        table=content.table.sql,
        lead=content.cursor_sql,
        after=content.range_sql(Range(whole.after, None)),
        upto=content.range_sql(Range(None, whole.upto)),
        backwards=content.descending,
    )
    return list(dict.fromkeys(tuple(texts) for texts in stream.rows(query)))


def _value_inside(bucket: Bucket, share: float, type_: str) -> sql.Composed:
    """A value inside a bucket, as SQL; its upper end if none can be computed."""
    if share >= 1.0 or any(end.lstrip("-") in _ENDLESS for end in (bucket.low, bucket.high)):
        return typed_literal(bucket.high, type_)
    if type_ == "uuid":
        start, end = (UUID(text).int for text in (bucket.low, bucket.high))
        return typed_literal(str(UUID(int=start + int((end - start) * Decimal(share)))), type_)
    value = sql.SQL(_VALUES_BETWEEN[without_modifier(type_)]).format(
        low=typed_literal(bucket.low, type_),
        high=typed_literal(bucket.high, type_),
        share=sql.Literal(Decimal(f"{share:.15f}")),
    )
    return sql.SQL("({})::{}").format(value, sql.SQL(type_))
