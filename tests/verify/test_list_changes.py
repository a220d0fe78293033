"""`penstock verify` of lists whose objects change: columns are compared, and newest-wins holds in a repair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.lists import STRIPE, Listed, charge

from penstock import wiring

BY_FIELD = "time: {lag: 0}, columns: {amount: int64}, changes: {updated: updated, deleted: gone, rescan: 1m}"
BY_PAGE = "time: {lag: 0}, columns: {amount: int64}, changes: {rescan: 1m}"
CUSTOMERS = "columns: {amount: int64}, deletes: hard"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def listed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    with Listed.open(database, tmp_path, monkeypatch) as listed:
        yield listed


@pytest.fixture
def stripe(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    endpoints: dict[str, dict[str, object]] = {"customers": {}, "events": {}}
    with Listed.open(database, tmp_path, monkeypatch, endpoints, stream="customers") as listed:
        listed.write(CUSTOMERS, source=f"{STRIPE}, live: true")
        for _ in range(30):
            listed.server.create("customers")
        listed.wait()
        listed.run()
        yield listed


@pytest.mark.parametrize("changes", [BY_FIELD, BY_PAGE], ids=["field", "page"])
def test_missing_stale_and_deleted_objects(changes: str, listed: Listed) -> None:
    listed.fill(options=changes)
    listed.wait(3600)
    listed.run()
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000003'")
    listed.execute("UPDATE copies.charges SET amount = -5 WHERE id = 'ch_00000009'")
    # A change that no run reads again: the object is older than the window.
    listed.server.alter("charges", "ch_00000020", amount=-7, updated=listed.server.now)
    listed.server.remove("charges", "ch_00000077")
    if changes == BY_FIELD:
        listed.server.alter("charges", "ch_00000088", gone=True, updated=listed.server.now)
    listed.wait()
    extra = charge(77, 88) if changes == BY_FIELD else charge(77)
    assert listed.differences() == {"missing": charge(3), "stale": charge(9, 20), "extra": extra}
    listed.repair()
    assert listed.differences() == {}
    assert listed.rows() == [each for each in listed.expected() if each[0] not in extra]
    code, stream = listed.verify()
    assert code == 0
    assert set(stream["columns_not_compared"]) == ({"json"} if changes == BY_FIELD else {"json", "_changed_at"})


def test_a_change_that_the_next_run_reads_is_in_flight(listed: Listed) -> None:
    listed.fill(30, BY_FIELD)
    listed.wait(10)
    listed.server.alter("charges", "ch_00000029", amount=-7, updated=listed.server.now)
    listed.server.alter("charges", "ch_00000028", gone=True, updated=listed.server.now)
    code, stream = listed.verify()
    assert (code, stream["in_flight"]) == (0, 2)
    listed.run()
    assert listed.differences() == {}


def test_a_repair_does_not_replace_a_newer_version(listed: Listed) -> None:
    listed.fill(30, BY_FIELD)
    listed.execute("UPDATE copies.charges SET amount = -5, _changed_at = '2030-01-01' WHERE id = 'ch_00000009'")
    done = listed.penstock("verify", "--repair", "--yes")
    assert done.exit_code == 5
    assert "1 stale after the repair: the sink does not take them, or has a newer row" in done.stdout + done.stderr


def test_deletes_that_are_marked(listed: Listed) -> None:
    listed.fill(30, f"{BY_FIELD}, deletes: soft, deleted_at: deleted_at")
    listed.wait(3600)
    listed.server.remove("charges", "ch_00000007")
    assert listed.differences() == {"extra": charge(7)}
    listed.repair()
    assert listed.differences() == {}
    [(marked, at)] = [row for row in listed.rows("id, deleted_at") if row[1] is not None]
    assert marked == "ch_00000007"
    assert at is not None


def test_a_sink_that_appends_gets_only_what_is_missing(listed: Listed) -> None:
    listed.fill(30, "time: {lag: 0}, columns: {amount: int64}, mode: append")
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000009'")
    listed.server.remove("charges", "ch_00000007")
    listed.server.alter("charges", "ch_00000005", amount=-1)
    assert listed.differences() == {"missing": charge(9)}
    listed.repair()
    assert listed.differences() == {}
    assert [id_ for id_, _ in listed.rows()] == charge(*range(30))


def test_stripe_objects(stripe: Listed) -> None:
    assert stripe.differences() == {}
    [first, second, third, *_] = [id_ for id_, _ in stripe.server.objects("customers")]
    stripe.execute(f"DELETE FROM copies.customers WHERE id = '{first}'")
    stripe.execute(f"UPDATE copies.customers SET amount = -1 WHERE id = '{second}'")
    # Without an event: as if it had been lost.
    stripe.server.remove("customers", third)
    assert stripe.differences() == {"missing": [first], "stale": [second], "extra": [third]}
    stripe.repair()
    assert stripe.differences() == {}
    assert stripe.rows() == stripe.expected()


def test_stripe_events_that_are_not_applied_yet_are_in_flight(stripe: Listed) -> None:
    [first, second, *_] = [id_ for id_, _ in stripe.server.objects("customers")]
    stripe.server.alter("customers", first, amount=-1)
    stripe.server.delete("customers", second)
    stripe.wait(5)
    code, stream = stripe.verify()
    assert (code, stream["in_flight"]) == (0, 2)
    stripe.run()
    assert stripe.differences() == {}


def test_an_older_event_does_not_undo_a_repair(stripe: Listed) -> None:
    """The repair read the object after its change; the event of the change comes with the next run."""
    [first, second, *_] = [id_ for id_, _ in stripe.server.objects("customers")]
    stripe.execute(f"DELETE FROM copies.customers WHERE id IN ('{first}', '{second}')")
    stripe.server.remove("customers", second)
    stripe.wait(5)
    stripe.repair()
    stripe.server.alter("customers", first, amount=-1)
    stripe.server.alter("customers", first, amount=-2)
    stripe.wait(5)
    stripe.run()
    assert stripe.rows() == stripe.expected()


def test_a_swapped_account_is_refused(stripe: Listed) -> None:
    stripe.server.set_account({"id": "acct_2", "object": "account", "created": 1})
    done = stripe.penstock("verify")
    assert done.exit_code == 2
    assert "the mark was made with account acct_1, and the key now belongs to account acct_2" in done.stdout


def test_events_that_stripe_no_longer_lists_are_kept(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listed.open(database, tmp_path, monkeypatch, {"customers": {}, "events": {}}, stream="events") as listed:
        listed.write("json_column: json", source=STRIPE)
        for day in (0, 20, 40):
            listed.server.set_clock(1_767_225_600 + day * 86400)
            listed.server.create("customers")
            listed.wait()
            listed.run()
        assert listed.differences() == {}
        assert len(listed.rows("id")) > len(listed.server.objects("events"))
