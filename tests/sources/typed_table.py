"""A table with a column of every type that the server has, and edge values in it: see test_postgres_types."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from tests.sources.type_values import EXTENSIONS, MADE, MODIFIED, VALUES, WITHOUT_VALUES

#: every type that a column can have: how to declare it, its name without schema and modifier, of which elements it is
TYPES = """
SELECT format_type(t.oid, -1), t.typname, format_type(coalesce(e.oid, t.oid), NULL), e.typname
FROM pg_type t LEFT JOIN pg_type e ON e.typarray = t.oid
LEFT JOIN pg_class c ON c.oid = coalesce(e.typrelid, t.typrelid)
WHERE t.typtype <> 'p' AND coalesce(e.typtype, t.typtype) <> 'p' AND (c.oid IS NULL OR c.relkind = 'c')
ORDER BY t.oid
"""
#: arrays of what is itself an array: there is no ARRAY[] for them
ARRAYS = {"ints": r"""'{"{1,NULL}","{}",NULL}'""", "codes": r"""'{"{x,NULL}","{}",NULL}'"""}


@dataclass(frozen=True)
class Column:
    """A column of the table that has all types."""

    name: str
    #: as it is declared
    type: str
    #: its values, as SQL
    values: Sequence[str]


def columns_of(found: Sequence[tuple[str, str, str, str | None]]) -> Iterator[Column]:
    for number, (declared, name, spelt, element) in enumerate(found):
        bare = element or name
        values = () if bare in WITHOUT_VALUES else VALUES.get(spelt, VALUES.get(bare))
        assert values is not None, f"tests/sources/type_values.py has no values of {declared}"
        if element is not None:
            values = arrays(declared, bare, values)
        yield Column(f"c{number}", declared, values)
    for number, (declared, values) in enumerate(MODIFIED.items()):
        yield Column(f"m{number}", declared, values)
        yield Column(f"n{number}", f"{declared}[]", arrays(f"{declared}[]", declared, values))


def arrays(declared: str, element: str, values: Sequence[str]) -> Sequence[str]:
    every = ", ".join(f"({value})::{declared.removesuffix('[]')}" for value in values)
    whole = ARRAYS.get(element) or (f"ARRAY[{every}, NULL]" if values else "ARRAY[NULL]")
    return (whole, "'{}'", "'{NULL}'")


def make_types(url: str) -> None:
    """The types that extensions and users make."""
    with psycopg.connect(url, autocommit=True) as db:
        there = db.execute("SELECT name FROM pg_available_extensions").fetchall()
        for (name,) in there:
            if name in EXTENSIONS:
                db.execute(f'CREATE EXTENSION "{name}"'.encode())
        db.execute(MADE.encode())


def make(url: str) -> list[Column]:
    """The table `t`; its columns."""
    make_types(url)
    with psycopg.connect(url, autocommit=True) as db:
        columns = list(columns_of(db.execute(TYPES).fetchall()))
        declared = ", ".join(f"{column.name} {column.type}" for column in columns)
        db.execute(f"CREATE TABLE t (id int PRIMARY KEY, {declared})".encode())
        for row in range(max(len(column.values) for column in columns) + 1):  # the last one has no value at all
            filled = [column for column in columns if row < len(column.values)]
            names = ", ".join(["id", *(column.name for column in filled)])
            values = ", ".join([str(row), *(f"({column.values[row]})::{column.type}" for column in filled)])
            db.execute(f"INSERT INTO t ({names}) VALUES ({values})".encode())
    return columns
