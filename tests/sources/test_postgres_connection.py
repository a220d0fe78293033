"""Connecting: options, what goes wrong and how it is said, and that no password is ever shown."""

import pickle
import socket
import subprocess
import sys
import traceback
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic import ValidationError
from tests.harness.postgres import PostgresServer, free_port
from tests.sources.tables import ORDERS, execute, rows, source

from penstock import sources
from penstock.errors import ConnectionFailed
from penstock.links.postgres.connection import READER_SUFFIX, SETTINGS, Identity, Session, Target
from penstock.links.postgres.failures import connect_error, first_line
from penstock.links.postgres.literals import TableName, quote
from penstock.sources.postgres import Options, StreamOptions

SECRET = "s3cr3t-w0rd"


def failure(url: str, **options: Any) -> tuple[str, str]:
    origin = source(url, **options)
    with pytest.raises(ConnectionFailed) as failed:
        origin.connect()
    shown = "".join(traceback.format_exception(failed.value)) + repr(origin) + repr(origin.__dict__)
    assert SECRET not in shown
    assert pickle.loads(pickle.dumps(failed.value)).what == failed.value.what
    return failed.value.what, failed.value.next_step


class TestWhatGoesWrong:
    def test_a_wrong_port(self) -> None:
        port = free_port()
        assert failure(f"postgresql://me:{SECRET}@127.0.0.1:{port}/shop") == (
            f"cannot connect to PostgreSQL at 127.0.0.1:{port}, database shop, user me: Connection refused",
            "see that PostgreSQL runs there and listens on that port, or correct `url`",
        )

    def test_a_wrong_host(self) -> None:
        what, step = failure(f"postgresql://me:{SECRET}@nowhere.invalid/shop")
        assert what.startswith(
            "cannot connect to PostgreSQL at nowhere.invalid:5432, database shop, user me: "
            "failed to resolve host 'nowhere.invalid'"
        )
        assert step == "correct the host in `url`"

    def test_a_wrong_password(self, postgres_server: PostgresServer) -> None:
        assert failure(postgres_server.url(password=SECRET)) == (
            f"cannot connect to PostgreSQL at 127.0.0.1:{postgres_server.port}, database postgres, "
            'user penstock: password authentication failed for user "penstock"',
            "correct the user or the password in `url`",
        )

    def test_no_password(self, postgres_server: PostgresServer) -> None:
        url = f"postgresql://penstock@127.0.0.1:{postgres_server.port}/postgres?passfile=/dev/null"
        what, step = failure(url)
        assert what.endswith("fe_sendauth: no password supplied")
        assert step == "put the password into `url`, best from an environment variable: ${PGPASSWORD}"

    def test_a_missing_database(self, postgres_server: PostgresServer) -> None:
        assert failure(postgres_server.url("shoop")) == (
            f"cannot connect to PostgreSQL at 127.0.0.1:{postgres_server.port}, database shoop, "
            'user penstock: database "shoop" does not exist',
            "correct the database in `url`, or create it",
        )

    def test_no_tls(self, postgres_server: PostgresServer) -> None:
        what, step = failure(f"{postgres_server.url()}?sslmode=require")
        assert what.endswith("server does not support SSL, but SSL was required")
        assert step == "turn TLS on at the server, or set `tls.mode` (sslmode in `url`) to prefer"

    def test_a_host_that_does_not_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            what, step = failure(f"postgresql://me:{SECRET}@127.0.0.1:{port}/shop", connect_timeout=2)
        assert "timeout" in what
        assert step.endswith("or raise `connect_timeout`")

    def test_a_parameter_that_libpq_does_not_know(self) -> None:
        assert failure(f"postgresql://me:{SECRET}@127.0.0.1/shop?sslmod=require") == (
            '`url` cannot be read: invalid URI query parameter: "sslmod"',
            "write postgresql://user:password@host:port/database, with @ in a password as %40",
        )

    def test_a_url_that_libpq_does_not_understand(self) -> None:
        assert failure(f"postgresql://me:{SECRET}%zz@127.0.0.1/shop")[0] == (
            "`url` cannot be read: it is not a PostgreSQL URL"
        )

    def test_other_words_of_the_server_have_their_step_too(self) -> None:
        for said, step in (
            ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', "allow this client"),
            ('FATAL:  role "me" does not exist', "correct the user"),
            ("FATAL:  sorry, too many clients already", "wait for others"),
            ("FATAL:  the database system is starting up", "wait until the server is up"),
            ("SSL error: certificate verify failed", "name the certificates that the server's descends from"),
            ("something new", "see that the server is up and that `url` is right"),
        ):
            assert connect_error("h:1", said).next_step.startswith(step)
        assert first_line("") == "no reason given"


class TestTheSession:
    def test_a_server_that_restarts_between_two_questions(self) -> None:
        with PostgresServer() as server:
            url = server.database()
            execute(url, ORDERS)
            origin = source(url, {"orders": {"cursor": "id", "unique": True}})
            before = origin.content("orders")
            server.stop()
            server.start()
            assert origin.content("orders") == before
            server.stop()
            with pytest.raises(ConnectionFailed, match="Connection refused"):
                origin.content("orders")
            server.start()

    def test_it_reads_only_and_says_who_it_is(self, database: str) -> None:
        execute(database, ORDERS)
        origin = source(database, {"orders": {}})
        origin.connect()
        ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'"
        assert rows(database, ours.format("penstock")) == [(1,)]
        named = source(database, application_name="nightly")
        named.connect()
        assert rows(database, ours.format("nightly")) == [(1,)]
        by_url = source(f"{database}?application_name=from_url")
        by_url.connect()
        assert rows(database, ours.format("from_url")) == [(1,)]
        session = origin._session
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            session._run(sql.SQL("DELETE FROM public.orders RETURNING id"), alone=False)

    def test_a_statement_that_takes_too_long(self, database: str) -> None:
        origin = source(database, statement_timeout=0.5)
        origin.connect()
        [[value]] = origin._session.rows(sql.SQL("SHOW statement_timeout"))
        assert value == "500ms"

    def test_a_question_leaves_nothing_behind(self, database: str) -> None:
        session = Session(Target.of(database), statement_timeout=5)
        connection = session._connection
        assert connection is not None
        with psycopg.connect(database) as other:
            fresh = {
                name: other.execute(f"SHOW {name}".encode()).fetchone() for name in (*SETTINGS, "statement_timeout")
            }
        [[inside]] = session.rows(sql.SQL("SELECT current_setting('search_path') -- and so on"), table="t")
        assert inside == "pg_catalog"
        assert session.find_error(sql.SQL("SELECT 'x'::int"))
        assert session.find_error(sql.SQL("SELECT nonsense"), user_statement=True)
        assert session.rows_if_permitted(sql.SQL("SELECT pg_read_file('pg_wal/nonsense')")) is None
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in fresh} == fresh
        session.close()

    def test_what_a_user_writes_is_one_statement(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id int)")
        session = Session(Target.of(database))
        assert session.find_error(sql.SQL("SELECT 1"), user_statement=True) is None
        wrong = session.find_error(sql.SQL("SELECT 1; COMMIT; INSERT INTO public.t VALUES (1)"), user_statement=True)
        assert wrong == "cannot insert multiple commands into a prepared statement"
        assert rows(database, "SELECT * FROM t") == []
        session.close()

    def test_every_question_says_how_far_the_server_was(self, database: str) -> None:
        session = Session(Target.of(database))
        assert (session.server.standby, session.server.timeline) == (False, 1)
        before = session.server.lsn
        execute(database, "CREATE TABLE t (id int)")
        assert session.server.lsn == before
        assert session.refresh_server().lsn == session.server.lsn != before
        session.close()

    def test_another_database_at_the_same_address_is_noticed(self, database: str) -> None:
        session = Session(Target.of(database))
        server, session.server = session.server, replace(session.server, identity=Identity("1", "2", "other"))
        with pytest.raises(ConnectionFailed, match="another database answers there now"):
            session.refresh_server()
        session = Session(Target.of(database))
        session.server = replace(server, timeline=7)
        with pytest.raises(ConnectionFailed, match="gone from timeline 7 to 1"):
            session.refresh_server()

    @pytest.mark.parametrize(
        ("name", "cut"),
        [("nightly", "nightly"), ("n" * 80, "n" * 46), ("Zürich", "Z?rich")],
    )
    def test_readers_are_told_apart(self, database: str, name: str, cut: str) -> None:
        target = Target.of(database, application_name=name).for_reading()
        assert len(f"{cut}{READER_SUFFIX}".encode()) <= 63
        with psycopg.connect(target.conninfo) as connection:
            [said] = connection.execute("SHOW application_name").fetchall()
        assert said == (f"{cut}{READER_SUFFIX}",)

    def test_a_server_that_dies_without_a_word_is_noticed(self) -> None:
        assert "keepalives_idle=30" in Target.of("postgresql://h/d").conninfo
        assert "keepalives_idle=5" in Target.of("postgresql://h/d?keepalives_idle=5").conninfo


class TestOptions:
    def test_a_url_is_hidden(self) -> None:
        options = Options.model_validate({"url": f"postgresql://me:{SECRET}@host/db"})
        assert SECRET not in f"{options!r} {options} {options.model_dump()}"

    @pytest.mark.parametrize(
        ("url", "wrong"),
        [
            (f"mysql://me:{SECRET}@host/db", "must start with postgresql://"),
            (f"host=x password={SECRET}", "must start with postgresql://"),
            (f"postgresql://me:{SECRET}@x@host/db", "cannot be split"),
            (f"postgresql://me:{SECRET}/x@host/db", "cannot be split"),
            (f"postgresql://me:12/{SECRET}@host/db", "cannot be split"),
            (f"postgresql://me:x#{SECRET}@host/db", "cannot be split"),
        ],
    )
    def test_a_url_that_would_leak_its_password_is_refused_without_showing_it(self, url: str, wrong: str) -> None:
        with pytest.raises(ValidationError, match=wrong) as refused:
            Options.model_validate({"url": url})
        assert SECRET not in str(refused.value)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://host/db",
            "postgres://me@host:5432/db?sslmode=require",
            "postgresql://me:a%40b%2F@[::1]:5433/db",
            "postgresql://me:x@one:1,two:2,three/db?target_session_attrs=any",
            "postgresql:///db?host=/run/postgresql&user=me",
        ],
    )
    def test_urls_of_every_shape(self, url: str) -> None:
        assert Options.model_validate({"url": url}).url.get_secret_value() == url

    def test_every_field_is_described(self) -> None:
        for model in (Options, StreamOptions):
            assert all(field.description for field in model.model_fields.values())
            assert model.model_config["extra"] == "forbid"

    def test_schema_is_called_schema(self) -> None:
        assert Options.model_validate({"url": "postgresql://h/d", "schema": "sales"}).default_schema == "sales"

    def test_a_tiebreaker_is_a_column_or_a_list(self) -> None:
        assert StreamOptions.model_validate({"tiebreaker": "id"}).tiebreaker == ("id",)
        assert StreamOptions.model_validate({"tiebreaker": ["a", "b"]}).tiebreaker == ("a", "b")
        with pytest.raises(ValidationError, match="names a twice"):
            StreamOptions.model_validate({"tiebreaker": ["a", "a"]})
        with pytest.raises(ValidationError, match="not a table name"):
            StreamOptions.model_validate({"table": "a.b.c"})


class TestNames:
    @pytest.mark.parametrize(
        ("text", "schema", "name"),
        [
            ("orders", "public", "orders"),
            ("sales.orders", "sales", "orders"),
            ('"a.b"', "public", "a.b"),
            ('sales."a.b"', "sales", "a.b"),
            ('"x""y".z', 'x"y', "z"),
            ("Größe 1", "public", "Größe 1"),
        ],
    )
    def test_a_table_name_reads_back(self, text: str, schema: str, name: str) -> None:
        table = TableName.read(text, "public")
        assert table == TableName(schema, name)
        assert TableName.read(str(table), "other") == table

    @pytest.mark.parametrize("text", ["", "a.b.c", ".a", "a.", 'a"b', '"a'])
    def test_what_is_no_table_name(self, text: str) -> None:
        with pytest.raises(ValueError, match="not a table name"):
            TableName.read(text, "public")

    def test_names_are_quoted_only_where_they_must_be(self) -> None:
        assert [quote(name) for name in ("orders", "Orders", "user", "1a", "a b", 'a"b')] == [
            "orders",
            '"Orders"',
            '"user"',
            '"1a"',
            '"a b"',
            '"a""b"',
        ]


class TestTheRegistry:
    def test_the_module_has_what_a_source_needs(self) -> None:
        module = sources.load("postgres")
        assert {"Options", "StreamOptions", "build"} <= set(dir(module))

    def test_an_unknown_type(self) -> None:
        with pytest.raises(KeyError):
            sources.load("postgress")

    def test_a_plan_imports_neither_arrow_nor_spark(self, database: str) -> None:
        execute(database, ORDERS, "INSERT INTO orders (updated_at) VALUES (now())")
        code = """
import sys
from penstock.ports import Budget, Context, NoProbe
from penstock import sources
module = sources.load("postgres")
stream = module.StreamOptions(cursor="updated_at", tiebreaker="id")
source = module.build(module.Options(url=sys.argv[1]), {"orders": stream}, Context("p", ".", NoProbe()))
source.connect()
source.catalog()
content = source.content("orders")
ceiling = source.ceiling("orders", content, "run")
assert source.plan("orders", content, None, ceiling, Budget(bytes=1000)).rows == 1
source.close()
heavy = {"pyarrow", "adbc_driver_manager", "pyspark", "numpy", "pandas", "pyiceberg", "sqlalchemy", "alembic"}
sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)
"""
        done = subprocess.run([sys.executable, "-c", code, database], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
