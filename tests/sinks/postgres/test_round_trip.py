"""Every type that a column can have, from Postgres into Postgres, straight and by way of the lake.

The rows are those of tests/sources/test_postgres_types. Values are compared by SQL, each as its type prints it, EXCEPT
both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.harness.postgres import PostgresServer
from tests.sinks.postgres.runs import PipelineRuns, context, open_sink, open_source
from tests.sources.type_values import UNFIT
from tests.sources.typed_table import Column, make

from penstock.links.postgres.transactions import SETTINGS
from penstock.sinks import lake as lake_sink
from penstock.sinks.postgres.columns import OUTPUT_ONLY
from penstock.sources import lake as lake_source

Db = psycopg.Connection[tuple[object, ...]]

#: made from a source's column that is of one of these, a column is text
NAMING = (
    *("regproc", "regprocedure", "regoper", "regoperator", "regclass", "regtype", "regconfig", "regdictionary"),
    *("regnamespace", "regrole", "regcollation", "aclitem"),
)
#: Postgres itself prints `~0.1 .. 1e10` without its end, and reads another value from that
MISPRINTED = ("public.seg", "public.seg[]")


@pytest.fixture(scope="module")
def typed(postgres_server: PostgresServer) -> Iterator[tuple[str, list[Column]]]:
    """A database with a table `t` that has a column of every type, and edge values in it."""
    url = postgres_server.database()
    yield url, make(url)
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


def connected(url: str) -> Db:
    db = psycopg.connect(url, autocommit=True)
    for name, setting in SETTINGS.items():
        db.execute("SELECT set_config(%s, %s, false)", (name, setting))
    return db


def declared(db: Db, table: str) -> dict[str, str]:
    found = db.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        [table],
    ).fetchall()
    return {str(name): str(type_) for name, type_ in found}


def cells(table: str, columns: Sequence[str], read_as: Mapping[str, str] | None = None) -> str:
    """Each value of a table, as its type prints it; some are read as another type first."""
    texts = {name: f"{name}::text::{type_}" for name, type_ in (read_as or {}).items()}
    values = ", ".join(f"('{name}', format('%L', {texts.get(name, name)}))" for name in columns)
    return f"SELECT t.id, x.name, x.value FROM {table} t CROSS JOIN LATERAL (VALUES {values}) x (name, value)"


def differences(db: Db, wanted: str, got: str) -> list[tuple[object, ...]]:
    query = f"(({wanted}) EXCEPT ({got})) UNION ALL (({got}) EXCEPT ({wanted}))"
    return db.execute(query.encode()).fetchall()


def same_table(db: Db, schema: str) -> None:
    """A table with the source's own columns; where nobody can write their values, text."""
    db.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.t (LIKE public.t INCLUDING ALL)".encode())
    for name, type_ in declared(db, f"{schema}.t").items():
        if type_.removesuffix("[]") in OUTPUT_ONLY:
            as_text = "text[]" if type_.endswith("[]") else "text"
            db.execute(f"ALTER TABLE {schema}.t ALTER {name} TYPE {as_text} USING NULL".encode())


def test_postgres_to_postgres(typed: tuple[str, list[Column]], database: str) -> None:
    url, _ = typed
    moving = PipelineRuns()
    with connected(url) as db:
        same_table(db, "same")
        db.execute("CREATE SCHEMA made")
    places = {"same": (url, "same.t"), "made": (url, "made.t"), "elsewhere": (database, "public.t")}
    for again in (False, True):
        for name, (to, into) in places.items():
            assert moving.run(name, open_source(url, name), open_sink(to, name, into=into)) == []
            assert moving.outcomes[-1] == {"equal" if again else "created": 15}

    with connected(url) as db, connected(database) as other:
        types = declared(db, "public.t")
        assert len(types) > 280
        misprinted = {name: type_ for name, type_ in types.items() if type_ in MISPRINTED}
        for name in ("same", "made"):
            assert differences(db, cells("public.t", [*types], misprinted), cells(f"{name}.t", [*types])) == []
        db.execute("CREATE TABLE public.elsewhere (id int, name text, value text)")
        with db.cursor().copy("COPY public.elsewhere FROM STDIN") as copy:
            for row in other.execute(cells("public.t", [*types]).encode()).fetchall():
                copy.write_row(row)
        assert differences(db, cells("public.t", [*types]), "SELECT * FROM public.elsewhere") == []

        made = declared(db, "made.t")
        assert {type_ for name, type_ in types.items() if made[name] != type_} == {
            type_ for type_ in types.values() if type_.removesuffix("[]") in (*NAMING, *OUTPUT_ONLY)
        }, "a type that is here is the column's own"
        there = declared(other, "public.t")
        became = {types[name]: there[name] for name in types}
        said = other.execute("SELECT description FROM pg_description WHERE objoid = 'public.t'::regclass").fetchall()
    assert became["character varying(9)"] == "character varying(9)"
    assert (became["public.mood"], became["public.mood[]"], became["public.pair"]) == ("text", "text[]", "text")
    assert (became["public.high_price"], became["public.code[]"]) == ("numeric(12,2)", "character(4)[]")
    assert {("penstock: stream t of pipeline elsewhere",), ("public.mood at the source",)} < set(said)
    assert len(said) == 1 + sum(there[name] != type_ for name, type_ in types.items())


def test_by_way_of_the_lake(typed: tuple[str, list[Column]], tmp_path: Path) -> None:
    url, _ = typed
    moving = PipelineRuns()
    with connected(url) as db:
        same_table(db, "lake_same")
        db.execute("CREATE SCHEMA lake_made")
    lake = {"warehouse": "lake"}
    into_lake = lake_sink.build(lake_sink.Options.model_validate(lake), {}, context("in", str(tmp_path)))
    assert moving.run("in", open_source(url, "in"), into_lake) == []
    for name in ("lake_same", "lake_made"):
        options = lake_source.Options.model_validate({**lake, "namespace": "in"})
        out_of_lake = lake_source.build(options, {}, context(name, str(tmp_path)))
        assert moving.run(name, out_of_lake, open_sink(url, name, into=f"{name}.t", key=["id"])) == []
        assert moving.outcomes[-1] == {"created": 15}

    with connected(url) as db:
        types = declared(db, "public.t")
        misprinted = {name: type_ for name, type_ in types.items() if type_ in MISPRINTED}
        assert differences(db, cells("public.t", [*types], misprinted), cells("lake_same.t", [*types])) == []
        # A time of day is text in the lake, with all its digits.
        times = {name: type_ for name, type_ in types.items() if "without" in type_ and type_.startswith("time(")}
        times |= {name: type_ for name, type_ in types.items() if type_.removesuffix("[]") == "time without time zone"}
        assert len(times) == 4
        assert differences(db, cells("public.t", [*types]), cells("lake_made.t", [*types], times)) == []


def test_what_arrow_cannot_hold_goes_as_text(typed: tuple[str, list[Column]]) -> None:
    url, _ = typed
    names = [f"c{number}" for number in range(len(UNFIT))]
    with connected(url) as db:
        db.execute("SET search_path = public")
        listed = ", ".join(f"{name} {type_}" for name, (type_, _) in zip(names, UNFIT, strict=True))
        db.execute(f"CREATE SCHEMA unfit; CREATE TABLE u (id int PRIMARY KEY, {listed})".encode())
        values = sql.SQL(", ").join(sql.Literal(value) for _, value in UNFIT)
        db.execute(sql.SQL("INSERT INTO u VALUES (1, {})").format(values))
    moving = PipelineRuns()
    for outcome in ("created", "equal"):
        source = open_source(url, "unfit", "u", unfit="text")
        assert moving.run("unfit", source, open_sink(url, "unfit", "u", into="unfit.u")) == []
        assert moving.outcomes[-1] == {outcome: 1}
    with connected(url) as db:
        assert declared(db, "unfit.u") == declared(db, "public.u")
        assert differences(db, cells("public.u", names), cells("unfit.u", names)) == []
