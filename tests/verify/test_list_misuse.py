"""What changes while a list is compared, what the API does wrong, and what was configured otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.lists import CHARGES, REST, Listed, charge

from penstock import wiring
from penstock.core.ranges import Key, Range
from penstock.links.postgres.row_digests import TableRows
from penstock.sources.rest.list_rows import ListRows


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def listed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    with Listed.open(database, tmp_path, monkeypatch) as listed:
        yield listed


def test_a_run_between_the_two_sides(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API was asked before, the sink after a run has moved the mark and the ceiling: nothing differs."""
    listed.fill()
    summarize, asked = TableRows.summarize, list[Range]()

    def run_first(self: TableRows, range_: Range) -> object:
        asked.append(range_)
        if len(asked) == 1:
            listed.server.arrive("charges", 50)
            listed.wait()
            assert listed.command.run("run", "shop.yaml").code == 0
        return summarize(self, range_)

    monkeypatch.setattr(TableRows, "summarize", run_first)
    assert listed.differences() == {}


def test_objects_that_come_and_go_while_it_compares(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what differs at the second look counts."""
    listed.fill()
    listed.server.remove("charges", "ch_00000007")
    list_digests = ListRows.list_digests

    def change_first(self: ListRows, range_: Range) -> object:
        found = list_digests(self, range_)
        listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000007'")
        listed.server.remove("charges", "ch_00000012")
        return found

    monkeypatch.setattr(ListRows, "list_digests", change_first)
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000012'")
    assert listed.differences() == {}


def test_a_repair_does_not_delete_what_is_listed_again(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    listed.fill()
    listed.server.remove("charges", "ch_00000077")
    listed.server.change("charges", odd={"300": {"id": "ch_00000077"}})
    look, looks = ListRows.look, list[Sequence[Key]]()

    def add_after(self: ListRows, keys: Sequence[Key]) -> object:
        found = look(self, keys)
        looks.append(keys)
        if len(looks) == 2:  # the look of the repair itself
            listed.server.add("charges", [listed.server.now])
        return found

    monkeypatch.setattr(ListRows, "look", add_after)
    listed.repair()
    assert len(looks) == 3
    assert "ch_00000077" in dict(listed.rows())


def test_rows_of_others_are_not_deleted(listed: Listed) -> None:
    listed.fill()
    listed.execute("INSERT INTO copies.charges (id, created) SELECT 'theirs', created FROM copies.charges LIMIT 1")
    done = listed.penstock("verify", "--repair", "--yes")
    assert (done.exit_code, "extra rows may be someone else's" in done.stdout) == (5, True), done.stdout
    listed.repair("--delete-extra")
    assert listed.rows() == listed.expected()


def test_the_rate_limit_is_waited_for(listed: Listed) -> None:
    listed.fill(600)
    listed.server.set_faults(rate=5, retry_after="1", errors=0.1)
    listed.write(source=REST.replace("retries: 2", "retries: 20"))
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000007'")
    assert listed.differences() == {"missing": charge(7)}


def test_an_api_that_fails_in_the_middle_is_an_error(listed: Listed) -> None:
    """Nothing is reported of a list that could not be read."""
    listed.fill(2000)
    listed.server.set_faults(errors=0.7)
    done = listed.penstock("verify")
    assert done.exit_code not in (0, 5), done.stdout


def test_a_filter_that_the_api_ignores_is_an_error(listed: Listed) -> None:
    listed.fill()
    listed.server.arrive("charges", 10)
    listed.server.change("charges", ignores_filter=True)
    done = listed.penstock("verify")
    assert done.exit_code == 1, done.stdout
    assert "the API ignores the filter" in done.stdout


def test_a_stream_that_is_forbidden_is_named(listed: Listed) -> None:
    listed.fill()
    listed.server.change("charges", status=403)
    done = listed.penstock("verify")
    assert done.exit_code == 2
    assert "shop/charges: cannot be compared, because it is skipped: " in done.stdout


def test_another_list_is_refused(listed: Listed) -> None:
    """The mark of one list says nothing about another one."""
    listed.fill()
    listed.write(more="params: {status: paid}")
    done = listed.penstock("verify")
    assert done.exit_code == 2
    assert "the mark was made with params" in done.stdout


def test_a_first_load_in_the_middle(listed: Listed) -> None:
    """Only times that were read to their end are compared: rows of others are neither missing nor extra."""
    listed.write()
    listed.server.arrive("charges", 1000)
    listed.wait()
    done = listed.penstock("verify")
    assert (done.exit_code, "because nothing was delivered yet" in done.stdout) == (2, True)
    listed.run("--max-rows", "300")
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000950'")
    assert listed.differences() == {"missing": charge(950)}
    listed.repair()
    listed.run()
    assert listed.rows() == listed.expected()


def test_a_time_limit_ends_it(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.rest.list_rows.WINDOW_ROWS", 50)
    listed.fill(1000)
    code, stream = listed.verify("--time-limit", "0.001s")
    assert (code, stream["complete"]) == (0, False)
    assert stream["limit"].startswith("time_limit")
    assert 0 < stream["rows"] < 1000


def test_a_column_without_an_order_is_refused(listed: Listed) -> None:
    listed.fill(10, "time: {lag: 0}, columns: {created: string}")
    done = listed.penstock("verify")
    assert done.exit_code == 2
    assert "its column created is string, which two systems may order differently" in done.stdout


def test_a_row_without_a_time_is_counted(listed: Listed) -> None:
    listed.fill(10)
    listed.execute("INSERT INTO copies.charges (id) VALUES ('theirs')")
    code, stream = listed.verify()
    assert (code, stream["in_flight"]) == (0, 1)


def test_columns_of_one_reason_are_one_line(listed: Listed) -> None:
    listed.fill(10, f"{CHARGES[:-1]}, currency: string}}")
    lines = [line for line in listed.penstock("verify").stdout.splitlines() if "not compared" in line]
    why = "an object may change after it was delivered, and the stream has no `changes`"
    assert lines == [f"  not compared: columns amount, currency, json: {why}"]
