"""`penstock verify` of a list of an API: what differs, what does not, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import TOP, blocks
from tests.harness.doubles import LoopMover
from tests.verify.lists import CHARGES, Listed, charge

from penstock import wiring


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def listed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    with Listed.open(database, tmp_path, monkeypatch) as listed:
        yield listed


def test_an_equal_table(listed: Listed) -> None:
    listed.fill()
    code, stream = listed.verify()
    assert (code, stream["rows"], stream["complete"]) == (0, 300, True)
    assert set(stream["columns_not_compared"]) == {"amount", "json"}


def test_missing_and_deleted_objects(listed: Listed) -> None:
    listed.fill()
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000003', 'ch_00000250')")
    listed.server.remove("charges", "ch_00000077")
    assert listed.differences() == {"missing": charge(3, 250), "extra": charge(77)}
    text = listed.penstock("verify").stdout
    assert text.startswith(
        "shop/charges: 299 rows compared: 2 missing, 1 extra\n  missing  created 2026-01-01 00:00:01"
    )
    listed.repair()
    assert listed.differences() == {}
    assert listed.rows() == listed.expected()
    # A repair with deletes has other content than the slices around it.
    listed.server.arrive("charges", 30)
    listed.wait()
    listed.run()
    assert listed.differences() == {}
    assert len(listed.rows()) == 329


def test_objects_that_are_not_delivered_yet_are_no_differences(listed: Listed) -> None:
    listed.fill()
    listed.server.arrive("charges", 30)
    listed.wait()
    assert listed.differences() == {}


def test_a_late_object_below_the_mark_is_missing(listed: Listed) -> None:
    listed.fill()
    listed.server.add("charges", [listed.server.now - 100])
    assert listed.differences() == {"missing": charge(300)}
    listed.repair()
    assert listed.rows() == listed.expected()


def test_an_object_with_a_later_time_is_not_deleted(listed: Listed) -> None:
    """Lists by the time of the last change: the next run delivers the object with its new time."""
    listed.fill()
    listed.server.update("charges", "ch_00000005", listed.server.now)
    listed.wait()
    code, stream = listed.verify()
    assert (code, stream["in_flight"]) == (0, 1)
    listed.run()
    assert listed.differences() == {}


@pytest.mark.parametrize("paging", ["last_id", "token", "page"])
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_orders_pagings_and_full_seconds(
    order: str, paging: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = {"order": order, "paging": paging, "most": 20}
    with Listed.open(database, tmp_path, monkeypatch, {"charges": endpoint}) as listed:
        begin = listed.server.now
        listed.server.add("charges", [begin + at for at in (0, *[5] * 70, *range(10, 60), *[90] * 45)])
        listed.wait(200)
        listed.write(f"{CHARGES}, order: {order}, paging: {{by: {paging}, size: 20}}")
        listed.run()
        assert listed.differences() == {}
        listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000001', 'ch_00000070', 'ch_00000100')")
        listed.server.remove("charges", "ch_00000140")
        listed.server.remove("charges", "ch_00000000")
        assert listed.differences() == {"missing": charge(1, 70, 100), "extra": charge(0, 140)}
        listed.repair()
        assert listed.rows() == listed.expected()


def test_a_budget_says_where_it_ended(listed: Listed) -> None:
    listed.fill(3000)
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000003', 'ch_00000850')")
    listed.server.forget_requests()
    code, stream = listed.verify("--max-rows", "200")
    assert (code, stream["rows"], stream["complete"], stream["limit"]) == (5, 200, False, "max_rows 200")
    assert stream["not_compared_after"] == ["2026-01-01 00:01:06.000000", "ch_00000199"]
    assert [key["id"] for key in stream["differences"]["missing"]] == charge(3)
    read = sum(each.get("objects", 0) for each in listed.server.requests("charges"))
    assert read < 1500, "the rest was not fetched"


def test_windows_cover_everything(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.rest.list_rows.WINDOW_ROWS", 70)
    listed.write()
    begin = listed.server.now
    listed.server.add(
        "charges", [begin + at for at in (*range(100), *[86400 * 40] * 300, *range(86400 * 90, 86400 * 91, 300))]
    )
    listed.wait(86400 * 100)
    listed.run()
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000000', 'ch_00000250', 'ch_00000687')")
    listed.server.remove("charges", "ch_00000099")
    code, stream = listed.verify()
    assert (code, stream["rows"], stream["complete"]) == (5, 687, True)
    assert listed.differences() == {"missing": charge(0, 250, 687), "extra": charge(99)}


def test_close_objects_cost_one_request(listed: Listed) -> None:
    """A repair of 60 objects of 20 seconds asks for them by pages."""
    listed.fill()
    listed.execute("DELETE FROM copies.charges WHERE id < 'ch_00000060'")
    listed.server.forget_requests()
    assert listed.differences() == {"missing": charge(*range(60))}
    assert len(listed.server.requests("charges")) < 40


def test_a_narrower_time_range_compares_what_is_configured(listed: Listed) -> None:
    listed.fill()
    begin = listed.server.objects("charges")[0][1]
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000003', 'ch_00000250')")
    listed.server.remove("charges", "ch_00000006")
    listed.write(more='time_range: {from: "2026-01-01T00:00:30Z"}')
    assert begin == 1_767_225_600
    assert listed.differences() == {"missing": charge(250)}


@pytest.mark.parametrize(("key", "exit_code"), [("int64", 0), ("string", 0), ("float64", 2)])
def test_types_of_ids(key: str, exit_code: int, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are ordered as numbers, and a delete has the id in its own type."""
    odd = {str(n): {"id": n} for n in range(40)}
    with Listed.open(database, tmp_path, monkeypatch, {"charges": {"odd": odd}}) as listed:
        listed.server.add("charges", [listed.server.now] * 40)
        listed.wait()
        listed.write(f"time: {{lag: 0}}, columns: {{id: {key}}}, paging: {{size: 50}}")
        listed.run()
        done = listed.penstock("verify")
        assert done.exit_code == exit_code, done.stdout
        if exit_code:
            assert "its column id is float64, which two systems may order differently" in done.stdout
            return
        listed.execute("DELETE FROM copies.charges WHERE id::text IN ('3', '20')")
        assert set(listed.differences()["missing"]) == {"3", "20"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("columns: {amount: int64}", "every run reads its whole list again"),
        ("incremental: true, order: oldest", "its list has no filter by time"),
    ],
)
def test_lists_that_are_refused(
    options: str, why: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listed.open(database, tmp_path, monkeypatch, {"charges": {"order": "oldest"}}) as listed:
        listed.fill(10, options)
        done = listed.penstock("verify")
        assert done.exit_code == 2
        assert f"shop/charges: cannot be compared, because {why}" in done.stdout


def test_files_are_refused(listed: Listed) -> None:
    listed.fill(10, sink="{type: files, directory: out}")
    done = listed.penstock("verify")
    assert (done.exit_code, "because this sink cannot be asked for rows by key" in done.stdout) == (2, True)


def test_the_commands_of_the_page(listed: Listed) -> None:
    listed.fill()
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000003'")
    listed.server.remove("charges", "ch_00000077")
    (block,) = blocks(TOP / "docs" / "sources" / "rest.md", "console")
    compare, repair = (each.split("\n", 1) for each in block.text.removeprefix("$ ").split("\n$ "))
    assert compare[0].split()[:3] == repair[0].split()[:3] == ["penstock", "verify", "shop.yaml"]
    assert listed.penstock("verify", *compare[0].split()[3:]).stdout.strip() == compare[1].strip()
    assert listed.penstock("verify", *repair[0].split()[3:]).exit_code == 0
    assert listed.rows() == listed.expected()
