"""Another account behind the same credentials: noticed where the API says which account asks, otherwise said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.core.marks import Mark
from penstock.errors import StreamFailed, StreamRefused
from penstock.ports import Budget
from penstock.sources.rest import AccountSource
from penstock.sources.rest.options import AccountField
from penstock.testing.contracts.source import drain

ACCOUNT = AccountField(path="account")
#: read by time, read whole, read on from a cursor
KINDS: dict[str, dict[str, Any]] = {
    "time": {"time": {"lag": 0}, "paging": {"size": 20}},
    "whole": {},
    "cursor": {"incremental": True, "order": "oldest"},
}


def opened(origin: List, **more: Any) -> AccountSource:
    return source(origin.server, origin.folder, {"charges": origin.options}, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_swapped_account_stops_the_stream_before_it_reads(kind: str, tmp_path: Path) -> None:
    with RestServer({"charges": {"order": KINDS[kind].get("order", "newest")}}) as server:
        origin = List(server, tmp_path, **KINDS[kind])
        server.arrive("charges", 100)
        first = opened(origin, account=ACCOUNT)
        moved = drain(first, origin, budget=Budget(bytes=1 << 20, rows=40))
        first.close()
        rows = [row for one in moved for row in one.rows]
        last = moved[-1].slice.position
        assert last.mark is not None
        assert last.mark.document["account"] == "acct_1"
        server.arrive("charges", 50)
        second = opened(origin, account=ACCOUNT)
        server.forget_requests()
        rows_again = [row for one in drain(second, origin, last, run="two") for row in one.rows]
        second.close()
        assert len(server.requests("account")) == 1, "once in a run"
        found = Counter(rows_again) if kind == "whole" else Counter([*rows, *rows_again])
        assert found == Counter(origin.rows())
        server.set_account({"id": "acct_2"})
        third = opened(origin, account=ACCOUNT)
        with pytest.raises(StreamRefused, match=r"made with account acct_1, and the .* account acct_2"):
            drain(third, origin, last, run="three")
        third.close()


def test_a_mark_without_an_account_takes_the_present_one_and_an_account_without_the_option_stays(
    tmp_path: Path,
) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, **KINDS["time"])
        marks: list[Mark | None] = []
        last = None
        for number, account in enumerate([None, ACCOUNT, None]):
            server.arrive("charges", 30)
            one = opened(origin, account=account)
            last = drain(one, origin, last, run=f"run {number}")[-1].slice.position
            one.close()
            marks.append(last.mark)
        assert [mark.document.get("account") if mark else None for mark in marks] == [None, "acct_1", "acct_1"]


@pytest.mark.parametrize(
    ("account", "field", "what"),
    [
        (None, "id", "the account of the credentials cannot be read: GET account: status 403"),
        ({"name": "x"}, "id", "GET account: field id, which names the account, is missing"),
        ({"owner": {"id": {}}}, "owner.id", "field owner.id, which names the account, is {}"),
    ],
)
def test_an_account_that_cannot_be_read_fails_the_stream(
    account: dict[str, Any] | None, field: str, what: str, tmp_path: Path
) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, **KINDS["time"])
        server.arrive("charges", 10)
        server.set_account(account)
        one = opened(origin, account=AccountField(path="account", field=field))
        with pytest.raises(StreamFailed, match=what):
            drain(one, origin)
        one.close()


def test_explain_says_whether_it_is_noticed(tmp_path: Path) -> None:
    def said(**more: Any) -> list[str]:
        one = opened(origin, **more)
        texts = [f"{each.kind}: {each.text}" for each in one.explain("charges", one.content("charges"))]
        one.close()
        return [text for text in texts if "account" in text]

    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, **KINDS["time"])
        key = {"auth": {"bearer": "sk_test"}}
        assert said() == []
        assert said(account=ACCOUNT, **key) == [
            "guarantee: the stream stops if the credentials belong to another account than before"
        ]
        assert said(**key) == [
            "gap: another account behind the same credentials is not noticed: its objects are added",
            "advice: set `account` of the source, if the API says which account asks",
        ]
