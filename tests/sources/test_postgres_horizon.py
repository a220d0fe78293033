"""Late commits on a real server: what an open transaction could still come before is not read, and then read once."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.late import BY_NUMBER, BY_TIME, NUMBERED, STAMPED, TOLD, Reads, tell, writer
from tests.sources.tables import execute, rows

from penstock.core.marks import Mark
from penstock.errors import StreamFailed
from penstock.links.postgres.connection import READER_SUFFIX
from penstock.sources.postgres.horizon import activity, certify, horizons


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def database(shared: str) -> Iterator[str]:
    """Empty, and sooner there than a database of its own."""
    execute(shared, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    yield shared
    for [gid] in rows(shared, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        execute(shared, f"ROLLBACK PREPARED '{gid}'")


@pytest.fixture
def stamped(database: str) -> Reads:
    execute(database, STAMPED)
    return Reads(database, BY_TIME)


@pytest.fixture
def numbered(database: str) -> Reads:
    execute(database, NUMBERED)
    return Reads(database, BY_NUMBER)


def insert(url: str, *ids: int) -> None:
    for each in ids:
        execute(url, f"INSERT INTO t (id) VALUES ({each})")


def add(url: str, count: int = 1) -> None:
    execute(url, *["INSERT INTO t (note) VALUES ('x')"] * count)


class TestTimes:
    def test_a_late_commit_is_held_back_and_then_read_once(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url, "nightly") as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (2, NULL, 'it''s a secret')")
            insert(stamped.url, 3, 4)
            run = stamped.run()
            assert run.ids == [1]
            assert run.left
            assert run.left.held_back == 2
            pid = late.info.backend_pid
            assert run.left.blocker
            assert run.left.blocker.startswith(f"process {pid} (user penstock, nightly), idle in a transaction for ")
            assert run.left.blocker.endswith("last with INSERT INTO t VALUES (2, NULL, '…')")
            assert (run.left.proven, run.left.warning) == (True, None)
            assert run.left.horizon
            assert run.left.horizon.endswith(" (proven)")
            assert stamped.run().ids == []
            tell(late, "COMMIT")
        assert sorted(stamped.run().ids) == [2, 3, 4]
        assert stamped.run().ids == []
        assert sorted(stamped.delivered) == [1, 2, 3, 4]

    def test_without_a_horizon_it_is_lost(self, stamped: Reads) -> None:
        stamped.horizon = {"method": "off"}
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (2)")
            insert(stamped.url, 3)
            run = stamped.run()
            assert run.ids == [1, 3]
            assert (run.proof["method"], run.proof["proven"]) == ("off", False)
            assert run.left
            assert run.left.proven is False
            tell(late, "COMMIT")
        insert(stamped.url, 4)
        assert stamped.run().ids == [4]

    def test_the_mark_holds_the_certificate(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        run = stamped.run()
        assert stamped.mark["proof"] == run.proof
        assert (run.proof["method"], run.proof["proven"], run.proof["pending"]) == ("activity", True, None)
        [(below,)] = rows(stamped.url, f"SELECT max(c) < '{run.proof['horizon'][0]}' FROM t")
        assert below

    def test_a_transaction_that_rolls_back_lets_go(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "SELECT 1")
            insert(stamped.url, 2)
            assert stamped.run().ids == [1]
            tell(late, "ROLLBACK")
            assert stamped.run().ids == [2]

    def test_a_row_at_the_very_time_of_an_open_transaction_waits(self, database: str) -> None:
        execute(database, TOLD.format(type="timestamptz"))
        reads = Reads(database, BY_TIME)
        with writer(database) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (1)")
            [[began]] = late.execute("SELECT now()::text").fetchall()
            execute(database, f"INSERT INTO t VALUES (3, '{began}'), (4, timestamptz '{began}' - interval '1 us')")
            run = reads.run()
            assert run.ids == [4]
            assert run.left
            assert run.left.held_back == 1
            assert run.left.proven is False
            tell(late, "INSERT INTO t VALUES (2)", "COMMIT")
        assert sorted(reads.run().ids) == [1, 2, 3]

    def test_a_message_of_several_transactions(self, stamped: Reads) -> None:
        """In all of them now() is when the message came."""
        message = (
            b"BEGIN; INSERT INTO t VALUES (1); COMMIT; SELECT pg_sleep(1); BEGIN; INSERT INTO t VALUES (2); COMMIT"
        )
        with writer(stamped.url) as late:
            sends = threading.Thread(target=late.execute, args=(message,))
            sends.start()
            try:
                while not rows(stamped.url, "SELECT FROM t"):
                    time.sleep(0.01)
                insert(stamped.url, 3)
                run = stamped.run()
            finally:
                sends.join()
        assert run.ids == []
        assert run.left
        assert run.left.held_back == 2
        assert sorted(stamped.run().ids) == [1, 2, 3]
        [[tied]] = rows(stamped.url, "SELECT count(DISTINCT c) FROM t WHERE id < 3")
        assert tied == 1

    def test_ends_between_two_looks_are_seen(self, stamped: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
        """The look after the margin decides: what has ended by then holds nothing back."""
        insert(stamped.url, 1)
        waits = certify.RunStart.wait
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (2)")

            def wait(self: certify.RunStart, seconds: float) -> None:
                tell(late, "COMMIT")
                waits(self, seconds)

            monkeypatch.setattr(certify.RunStart, "wait", wait)
            stamped.horizon = {"margin": 0.5}
            insert(stamped.url, 3)
            assert stamped.run().ids == [1, 2, 3]

    def test_a_moment_is_waited_only_where_others_are_connected(
        self, stamped: Reads, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[float] = []
        monkeypatch.setattr(certify.RunStart, "wait", lambda self, seconds: waited.append(seconds))
        stamped.horizon = {"margin": 100}
        insert(stamped.url, 1)
        assert stamped.run().ids == [1]
        assert waited == []
        with writer(stamped.url):
            insert(stamped.url, 2)
            assert stamped.run().ids == [2]
            assert waited == [100]
            stamped.horizon = {"margin": 0.05}
            # One that has been there for long holds rows back however long we wait.
            with writer(stamped.url) as late:
                tell(late, "BEGIN", "SELECT 1")
                time.sleep(0.1)
                insert(stamped.url, 3)
                assert stamped.run().ids == []
                assert waited == [100]
            # Nobody can still be hiding behind a row that is old enough.
            time.sleep(0.1)
            assert stamped.run().ids == [3]
            assert waited == [100]

    def test_streams_of_a_run_share_its_beginning(self, stamped: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
        waited: list[float] = []
        waits = certify.RunStart.wait

        def wait(self: certify.RunStart, seconds: float) -> None:
            waited.append(seconds)
            waits(self, seconds)

        monkeypatch.setattr(certify.RunStart, "wait", wait)
        stamped.horizon = {"margin": 0.5}
        insert(stamped.url, 1)
        with writer(stamped.url) as other:
            origin = stamped.open()
            content = origin.content("t")
            for _ in range(3):
                tell(other, "UPDATE t SET note = 'fresh'")
                assert origin.ceiling("t", content, "run", None)
            assert waited == [0.5]
            tell(other, "UPDATE t SET note = 'fresh'")
            assert origin.ceiling("t", content, "another run", None)
            assert waited == [0.5, 0.5]

    def test_our_own_readers_hold_nothing_back(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url, f"shop{READER_SUFFIX}") as reader:
            tell(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SELECT FROM t")
            insert(stamped.url, 2)
            assert stamped.run().ids == [1, 2]

    def test_a_cursor_without_digits_below_the_second(self, database: str) -> None:
        execute(database, STAMPED.replace("timestamptz", "timestamptz(0)"))
        reads = Reads(database, BY_TIME)
        with writer(database) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (1)")
            insert(database, 2)
            [[together]] = rows(database, "SELECT c - date_trunc('second', now()) FROM t")
            assert reads.run().ids == [], together
            tell(late, "COMMIT")
        deadline = time.monotonic() + 10
        while len(reads.delivered) < 2 and time.monotonic() < deadline:
            run = reads.run()
            if not run.ids:
                assert run.left
                assert run.left.blocker is None
                assert "less than microsecond precision" in str(run.left.horizon)
            time.sleep(0.2)
        assert sorted(reads.delivered) == [1, 2]

    def test_rows_ahead_of_the_clock_wait_for_it(self, database: str) -> None:
        execute(database, TOLD.format(type="timestamptz"))
        reads = Reads(database, BY_TIME)
        insert(database, 1)
        execute(database, "INSERT INTO t VALUES (2, now() + interval '1 h')")
        run = reads.run()
        assert run.ids == [1]
        assert run.left
        assert (run.left.held_back, run.left.blocker) == (1, None)
        assert "ahead of the server's clock" in str(run.left.horizon)
        insert(database, 3)
        assert reads.run().ids == [3]

    def test_a_clock_that_was_set_back_is_noticed(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        assert stamped.run().ids == [1]
        assert stamped.last
        document = stamped.mark
        [[later]] = rows(stamped.url, "SELECT (now() + interval '1 h')::text")
        mark = Mark.of({**document, "proof": {**document["proof"], "horizon": [later]}})
        stamped.last = replace(stamped.last, mark=mark)
        insert(stamped.url, 2)
        run = stamped.run()
        assert run.ids == [2]
        assert "was set back" in str(run.left and run.left.warning)
        insert(stamped.url, 3)
        run = stamped.run()
        assert run.left
        assert (run.ids, run.left.warning) == ([3], None)

    def test_a_lag_counts_only_where_nothing_is_proven(self, database: str) -> None:
        execute(database, TOLD.format(type="timestamptz"))
        reads = Reads(database, BY_TIME, {"lag": 60})
        execute(database, "INSERT INTO t VALUES (1, now() - interval '2 min')")
        insert(database, 2)
        run = reads.run()
        assert run.ids == [1]
        assert run.left
        assert (run.left.held_back, run.left.blocker) == (1, None)
        assert "rows wait for the `lag` of 60 s" in str(run.left.horizon)
        execute(database, "DROP TABLE t CASCADE", STAMPED)
        reads = Reads(database, BY_TIME, {"lag": 60})
        insert(database, 3)
        assert reads.run().ids == [3]


class TestPrepared:
    def test_one_from_before_the_first_run_holds_everything(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        prepare(stamped.url, "waits", "INSERT INTO t VALUES (2)")
        insert(stamped.url, 3)
        run = stamped.run()
        # Its stamps may be of any age: the row is there, and nothing is known of what lies before it.
        assert (run.ids, run.slices) == ([], 1)
        assert run.left
        assert run.left.held_back == 2
        assert run.left.blocker
        assert run.left.blocker.startswith("the prepared transaction 'waits' (owner penstock), waiting for ")
        assert stamped.mark["key"] is None
        assert [holder[:3] for holder in stamped.mark["proof"]["pending"]["holders"]] == ["-1/"]
        insert(stamped.url, 4)
        assert (stamped.run().ids, stamped.run().slices) == ([], 0)
        execute(stamped.url, "COMMIT PREPARED 'waits'")
        assert sorted(stamped.run().ids) == [1, 2, 3, 4]

    def test_one_from_after_a_run_holds_what_came_since(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        assert stamped.run().ids == [1]
        certified = stamped.mark["proof"]["horizon"]
        prepare(stamped.url, "waits", "INSERT INTO t VALUES (2)")
        insert(stamped.url, 3)
        run = stamped.run()
        assert (run.ids, run.proof["horizon"]) == ([], certified)
        assert run.left
        assert run.left.held_back == 1
        execute(stamped.url, "ROLLBACK PREPARED 'waits'")
        assert stamped.run().ids == [3]

    def test_one_that_was_open_during_a_run_and_is_prepared_then(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (2)")
            insert(stamped.url, 3)
            assert stamped.run().ids == [1]
            tell(late, "PREPARE TRANSACTION 'late'")
        insert(stamped.url, 4)
        assert stamped.run().ids == []
        execute(stamped.url, "COMMIT PREPARED 'late'")
        assert sorted(stamped.run().ids) == [2, 3, 4]

    def test_a_later_one_does_not_keep_an_earlier_place_from_being_certified(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        prepare(stamped.url, "first", "INSERT INTO t VALUES (2)")
        insert(stamped.url, 3)
        assert stamped.run().ids == []
        prepare(stamped.url, "second", "INSERT INTO t VALUES (4)")
        execute(stamped.url, "COMMIT PREPARED 'first'")
        insert(stamped.url, 5)
        run = stamped.run()
        assert sorted(run.ids) == [1, 2, 3]
        assert len(stamped.mark["proof"]["pending"]["holders"]) == 1
        execute(stamped.url, "COMMIT PREPARED 'second'")
        assert sorted(stamped.run().ids) == [4, 5]

    def test_a_wait_that_would_release_nothing_is_not_written_down(self, stamped: Reads) -> None:
        """Rows wait for a transaction that everyone sees; prepared ones that come and go beside it change nothing."""
        insert(stamped.url, 1)
        assert stamped.run().ids == [1]
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "SELECT FROM t")
            insert(stamped.url, 2)
            for number in range(3):
                gid = f"passing {number}"
                prepare(stamped.url, gid, f"INSERT INTO t VALUES ({10 + number})")
                run = stamped.run()
                assert (run.ids, run.slices) == ([], 0)
                assert run.left
                assert run.left.blocker
                execute(stamped.url, f"COMMIT PREPARED '{gid}'")
            tell(late, "COMMIT")
        assert sorted(stamped.run().ids) == [2, 10, 11, 12]

    def test_what_is_certified_already_is_not_waited_for_again(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "SELECT FROM t")
            insert(stamped.url, 2)
            slices = 0
            for number in range(4):
                gid = f"passing {number}"
                prepare(stamped.url, gid, f"INSERT INTO t VALUES ({10 + number})")
                slices += stamped.run().slices
                execute(stamped.url, f"COMMIT PREPARED '{gid}'")
            # One that waits for the first, and one with the row that it let pass.
            assert (stamped.delivered, slices) == ([1], 2)
            tell(late, "COMMIT")
        assert sorted(stamped.run().ids) == [2, 10, 11, 12, 13]

    def test_one_that_writes_elsewhere_holds_nothing(self, stamped: Reads) -> None:
        execute(stamped.url, "CREATE TABLE other (id int)")
        prepare(stamped.url, "elsewhere", "INSERT INTO other VALUES (1)")
        insert(stamped.url, 1)
        assert stamped.run().ids == [1]

    def test_one_that_has_written_a_partition(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int PRIMARY KEY, c timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id);"
            "CREATE INDEX ON t (c, id); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9)",
        )
        reads = Reads(database, BY_TIME)
        prepare(database, "leaf", "INSERT INTO t1 VALUES (2)")
        insert(database, 3)
        assert reads.run().ids == []
        execute(database, "COMMIT PREPARED 'leaf'")
        assert reads.run().ids == [2, 3]


class TestNumbers:
    def test_a_lower_number_that_commits_later(self, numbered: Reads) -> None:
        add(numbered.url)
        with writer(numbered.url) as late:
            tell(late, "BEGIN", "INSERT INTO t (note) VALUES ('late')")
            add(numbered.url, 2)
            run = numbered.run()
            assert (run.ids, run.slices) == ([], 1)
            assert run.left
            assert run.left.held_back == 3
            assert f"process {late.info.backend_pid} " in str(run.left.blocker)
            assert numbered.mark["key"] is None
            assert numbered.mark["proof"]["pending"]["value"] == ["4"]
            # More comes, and what is waited for stays the same: or under a constant load nothing would be read.
            add(numbered.url)
            again = numbered.run()
            assert (again.ids, again.slices, again.proof["pending"]) == ([], 0, run.proof["pending"])
            tell(late, "COMMIT")
        assert numbered.run().ids == [1, 2, 3, 4, 5]
        assert numbered.mark["proof"]["horizon"] == ["5"]
        assert numbered.run().ids == []

    def test_what_is_waited_for_is_read_though_others_have_begun(self, numbered: Reads) -> None:
        with writer(numbered.url) as first, writer(numbered.url) as second:
            tell(first, "BEGIN", "INSERT INTO t (note) VALUES ('first')")
            add(numbered.url)
            assert numbered.run().ids == []
            tell(second, "BEGIN", "INSERT INTO t (note) VALUES ('second')")
            add(numbered.url)
            tell(first, "ROLLBACK")
            run = numbered.run()
            assert run.ids == [2]
            assert numbered.mark["proof"]["pending"]["value"] == ["4"]
            assert run.left
            assert run.left.held_back == 1
            tell(second, "COMMIT")
        assert numbered.run().ids == [3, 4]

    def test_short_transactions_are_given_a_moment(self, numbered: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
        sleeps: list[float] = []
        with writer(numbered.url) as late:
            tell(late, "BEGIN", "INSERT INTO t (note) VALUES ('late')")

            def sleep(seconds: float) -> None:
                sleeps.append(seconds)
                if len(sleeps) == 3:
                    tell(late, "COMMIT")

            monkeypatch.setattr(certify, "time", Clock(sleep))
            add(numbered.url)
            run = numbered.run()
        assert (run.ids, run.slices, len(sleeps)) == ([1, 2], 1, 3)

    def test_a_savepoint_that_was_rolled_back_to_lets_go(self, numbered: Reads) -> None:
        with writer(numbered.url) as late:
            tell(late, "BEGIN", "SAVEPOINT s", "INSERT INTO t (note) VALUES ('never')", "ROLLBACK TO s")
            add(numbered.url)
            assert numbered.run().ids == [2]
            tell(late, "INSERT INTO t (note) VALUES ('late')")
            add(numbered.url)
            assert numbered.run().ids == []
            tell(late, "COMMIT")
        assert numbered.run().ids == [3, 4]

    def test_one_that_prepares_while_it_is_waited_for(self, numbered: Reads) -> None:
        with writer(numbered.url) as late:
            tell(late, "BEGIN", "INSERT INTO t (note) VALUES ('late')")
            add(numbered.url)
            assert numbered.run().ids == []
            tell(late, "PREPARE TRANSACTION 'late'")
        run = numbered.run()
        assert (run.ids, run.slices) == ([], 1)
        assert [holder[:3] for holder in numbered.mark["proof"]["pending"]["holders"]] == ["-1/"]
        assert "the prepared transaction 'late'" in str(run.left and run.left.blocker)
        # Now none of the others that are prepared can be it.
        prepare(numbered.url, "other", "INSERT INTO t (note) VALUES ('other')")
        assert numbered.run().slices == 0
        execute(numbered.url, "COMMIT PREPARED 'late'")
        assert numbered.run().ids == [1, 2]

    def test_locks_that_write_no_rows_hold_nothing(self, numbered: Reads) -> None:
        add(numbered.url)
        with writer(numbered.url) as other:
            tell(other, "BEGIN", "LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE", "SELECT FROM t FOR UPDATE")
            assert numbered.run().ids == [1]

    def test_relatives_count(self, database: str) -> None:
        execute(
            database,
            NUMBERED.replace("TABLE t", "TABLE whole") + " PARTITION BY RANGE (id);"
            "CREATE TABLE t PARTITION OF whole FOR VALUES FROM (0) TO (100)",
        )
        whole, leaf = Reads(database, {**BY_NUMBER, "table": "whole"}), Reads(database, BY_NUMBER)
        with writer(database) as late:
            tell(late, "BEGIN", "LOCK TABLE ONLY t IN ROW EXCLUSIVE MODE")
            execute(database, "INSERT INTO whole (note) VALUES ('x')")
            assert (whole.run().ids, leaf.run().ids) == ([], [])
            tell(late, "ROLLBACK", "BEGIN", "LOCK TABLE ONLY whole IN ROW EXCLUSIVE MODE")
            assert (whole.run().ids, leaf.run().ids) == ([1], [1])
            execute(database, "INSERT INTO whole (note) VALUES ('x')")
            assert (whole.run().ids, leaf.run().ids) == ([], [])
            tell(late, "ROLLBACK")
        assert (whole.run().ids, leaf.run().ids) == ([2], [2])

    def test_a_lag_is_waited_for(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id bigserial PRIMARY KEY, note text)")
        reads = Reads(database, BY_NUMBER, {"lag": 0.3})
        add(database)
        run = reads.run()
        assert (run.ids, run.slices) == ([], 1)
        assert run.left
        assert (run.left.held_back, run.left.blocker) == (1, None)
        assert "rows wait for the `lag` of 0.3 s" in str(run.left.horizon)
        add(database)
        time.sleep(0.4)
        assert reads.run().ids == [1]
        time.sleep(0.4)
        assert reads.run().ids == [2]


class TestHidden:
    @pytest.fixture
    def reader(self, stamped: Reads, postgres_server: PostgresServer) -> Iterator[Reads]:
        """The same stream for a user who may see nothing of others."""
        execute(
            stamped.url,
            "CREATE ROLE onlooker LOGIN PASSWORD 'penstock'",
            "GRANT USAGE ON SCHEMA public TO onlooker; GRANT SELECT ON t TO onlooker",
        )
        yield Reads(stamped.url.replace("penstock:", "onlooker:", 1), BY_TIME)
        execute(stamped.url, "DROP OWNED BY onlooker", "DROP ROLE onlooker")

    def test_what_the_server_hides_its_locks_tell(self, stamped: Reads, reader: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "INSERT INTO t VALUES (2)")
            insert(stamped.url, 3)
            run = reader.run()
            assert (run.ids, run.slices) == ([], 1)
            assert run.left
            assert run.left.held_back == 2
            assert run.left.proven is False
            pid = late.info.backend_pid
            unknown = f"process {pid} (user penstock, writer), in a transaction that the server does not show"
            assert run.left.blocker == unknown, "nobody knows for how long"
            assert "1 session that the server hides from onlooker" in str(run.left.horizon)
            tell(late, "COMMIT")
            # An idle session that is hidden leaves the label as it is, and holds nothing back.
            run = reader.run()
            assert run.left
            assert (sorted(run.ids), run.left.proven) == ([1, 2, 3], False)
            insert(stamped.url, 4)
            assert reader.run().ids == [4]
        insert(stamped.url, 5)
        run = reader.run()
        assert run.left
        assert (run.ids, run.left.proven) == ([5], True)

    def test_sessions_that_do_not_track_their_activity(self, stamped: Reads) -> None:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "SET track_activities = off", "BEGIN", "INSERT INTO t VALUES (2)")
            insert(stamped.url, 3)
            run = stamped.run()
            assert run.ids == []
            assert run.left
            assert run.left.proven is False
            tell(late, "COMMIT")
            assert sorted(stamped.run().ids) == [1, 2, 3]

    def test_one_that_begins_to_track_in_the_midst_of_it(self, stamped: Reads) -> None:
        """It shows when its query began, which is later than its transaction did."""
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "SET track_activities = off", "BEGIN", "INSERT INTO t VALUES (2)")
            insert(stamped.url, 3)
            tell(late, "SET track_activities = on", "SELECT 1")
            assert 3 not in stamped.run().ids
            tell(late, "COMMIT")
        stamped.run()
        assert sorted(stamped.delivered) == [1, 2, 3]

    def test_the_right_to_see_more_is_advised(self, stamped: Reads, reader: Reads) -> None:
        for reads, advised in ((stamped, False), (reader, True)):
            origin = reads.open()
            said = [remark.text for remark in origin.explain("t", origin.content("t"))]
            assert any("GRANT pg_read_all_stats TO onlooker;" in text for text in said) == advised

    def test_a_lag_counts_if_one_is_hidden(self, stamped: Reads, reader: Reads) -> None:
        reader.horizon = {"lag": 60}
        insert(stamped.url, 1)
        assert reader.run().ids == [1]
        with writer(stamped.url):
            insert(stamped.url, 2)
            run = reader.run()
        assert run.ids == []
        assert "rows wait for the `lag` of 60 s" in str(run.left and run.left.horizon)


class TestOldBlockers:
    @pytest.fixture
    def blocked(self, stamped: Reads) -> Iterator[Reads]:
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "SELECT 1")
            insert(stamped.url, 2)
            time.sleep(0.1)
            yield stamped

    def test_one_that_is_old_is_warned_of(self, blocked: Reads) -> None:
        blocked.horizon = {"warn_after": 0.05}
        run = blocked.run()
        assert run.left
        assert run.ids == [1]
        assert run.left.warning == (
            f"rows are held back by {run.left.blocker}; end that transaction, for example with "
            f"`SELECT pg_terminate_backend({str(run.left.blocker).split()[1]})`, if it has been forgotten"
        )

    def test_one_that_is_older_than_allowed_fails_the_stream(self, blocked: Reads) -> None:
        blocked.horizon = {"fail_after": 0.05}
        with pytest.raises(StreamFailed) as failed:
            blocked.run()
        assert failed.value.what.startswith(
            "rows of public.t have been held back for more than 0 s (`fail_after`), by "
        )
        assert "pg_terminate_backend" in failed.value.next_step
        assert "raise `fail_after`" in failed.value.next_step

    def test_only_if_it_holds_rows_back(self, stamped: Reads) -> None:
        stamped.horizon = {"fail_after": 0.05, "warn_after": 0.05}
        insert(stamped.url, 1)
        with writer(stamped.url) as late:
            tell(late, "BEGIN", "SELECT 1")
            time.sleep(0.1)
            run = stamped.run()
            assert run.left
            assert (run.ids, run.left.blocker, run.left.warning) == ([1], None, None)

    def test_a_prepared_one(self, stamped: Reads) -> None:
        stamped.horizon = {"fail_after": 0.05}
        prepare(stamped.url, "it's forgotten", "INSERT INTO t VALUES (1)")
        insert(stamped.url, 2)
        time.sleep(0.1)
        with pytest.raises(StreamFailed) as failed:
            stamped.run()
        assert "`ROLLBACK PREPARED 'it''s forgotten'`" in failed.value.next_step
        execute(stamped.url, "ROLLBACK PREPARED 'it''s forgotten'")


class TestNothingNew:
    @pytest.mark.parametrize(
        ("way", "row"),
        [("stamped", "INSERT INTO t SELECT 1 + count(*) FROM t"), ("numbered", "INSERT INTO t DEFAULT VALUES")],
    )
    def test_the_horizon_is_not_asked(
        self, way: str, row: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads: Reads = request.getfixturevalue(way)
        assert reads.run().ceiling is None
        execute(reads.url, row)
        assert reads.run().ids == [1]

        def never(*arguments: Any, **options: Any) -> Any:
            raise AssertionError("asked although nothing is new")

        for module, name in ((horizons, "prove"), (certify, "scan_activity"), (certify, "list_locks")):
            monkeypatch.setattr(module, name, never)
        with writer(reads.url) as late:
            tell(late, "BEGIN", row)
            run = reads.run()
            assert (run.ids, run.slices, run.told) == ([], 0, None)
            assert run.left
            assert (run.left.rows, run.left.held_back, run.left.blocker) == (0, None, None)

    def test_rows_that_are_gone_are_nothing_new(self, stamped: Reads) -> None:
        insert(stamped.url, 1, 2)
        assert stamped.run().ids == [1, 2]
        execute(stamped.url, "DELETE FROM t WHERE id = 2")
        assert (stamped.run().ids, stamped.run().slices) == ([], 0)
        execute(stamped.url, "DELETE FROM t")
        assert (stamped.run().ids, stamped.run().slices) == ([], 0)


class TestWords:
    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ("UPDATE t\n  SET a = 1", "UPDATE t SET a = 1"),
            (
                "ALTER USER x PASSWORD 'it''s'; SELECT $q$ a; $q$ , 'cut of",
                "ALTER USER x PASSWORD '…'; SELECT '…' , '…'",
            ),
            ("SELECT " + "x" * 200, "SELECT " + "x" * 111 + " …"),
        ],
    )
    def test_a_query(self, query: str, shown: str) -> None:
        assert activity.shorten_query(query) == shown
        assert len(shown) <= 120

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0.9, "0 s"), (119, "119 s"), (720, "12 min"), (3600 * 3 + 420, "3 h 7 min"), (86400 * 2 + 7200, "2 d 2 h")],
    )
    def test_an_age(self, seconds: float, words: str) -> None:
        assert activity.format_duration(seconds) == words

    def test_what_is_hidden_is_left_out(self) -> None:
        nobody = activity.Blocker(None, None, None, None, None, None, None)
        assert nobody.describe() == "a transaction that has just ended"
        assert activity.Blocker(7, None, "", "active", "", None, 5).describe() == "process 7, in a transaction for 5 s"
        assert (
            activity.Blocker(7, "u", "", "active", None, None, None).describe()
            == "process 7 (user u), in a transaction"
        )
        hidden = activity.Blocker(7, "u", "", None, None, None, 0.4, at_least=True)
        assert hidden.describe() == "process 7 (user u), in a transaction that the server does not show"
        assert replace(hidden, seconds=720).describe() == f"{hidden.describe()}, open for at least 12 min"
        idle = activity.Blocker(7, "u", "a", "idle in transaction (aborted)", "", None, 3)
        assert idle.describe() == "process 7 (user u, a), idle in a transaction for 3 s"


class Clock:
    """Time that goes on by itself, with sleeps that are counted."""

    def __init__(self, sleep: Any) -> None:
        self.sleep = sleep
        self.monotonic = time.monotonic


def prepare(url: str, gid: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        quoted = gid.replace("'", "''")
        tell(connection, "BEGIN", *statements, f"PREPARE TRANSACTION '{quoted}'")
