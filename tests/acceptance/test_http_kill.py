"""SIGKILL from outside at every point of a run that sends over HTTP; rows arrive and the file changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.http_shop import HttpShop
from tests.acceptance.matrix import ONCE
from tests.harness.faults import HTTP_RUN_POINTS
from tests.harness.http_receiver import Answered, KeyedReceiver, LedgerReceiver, Seen, Served, ids_of

#: the points that a foreign receiver adds to, or sees otherwise
OF_SENDING = (
    "http.part_written",
    "gate.sealed",
    "gate.seal_kept",
    "http.chunk_sent",
    "gate.committed",
    "gate.advanced",
)


def kill_and_run(shop: HttpShop, point: str, nth: int) -> None:
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=1 if point in ONCE else nth)
    assert found["point"] == point
    shop.arrive(100)
    shop.write(chunk_rows=17, slice_bytes=30_000, stream=", shape: {drop: [extra]}")
    shop.run()


@pytest.mark.parametrize("point", HTTP_RUN_POINTS)
def test_killed_at(point: str, database: str, tmp_path: Path) -> None:
    receiver = LedgerReceiver()
    with Served(receiver) as served, HttpShop.open(database, tmp_path, served.url) as shop:
        kill_and_run(shop, point, nth=2)
        shop.resent()
        assert ids_of(receiver.readable["orders"]) == shop.ids()
        assert receiver.open_rows() == 0
    assert not [*tmp_path.rglob("*-staged-*")], "spools are removed once the slice is in"


@pytest.mark.parametrize("point", OF_SENDING)
def test_killed_while_sending_to_a_receiver_of_another_kind(point: str, database: str, tmp_path: Path) -> None:
    receiver = KeyedReceiver()
    with (
        Served(receiver) as served,
        HttpShop.open(database, tmp_path, served.url, options=", protocol: plain") as shop,
    ):
        kill_and_run(shop, point, nth=2)
        shop.resent()
        assert [row["id"] for row in receiver.rows("/")] == shop.ids()
    assert not [*tmp_path.rglob("*-staged-*")]


@pytest.mark.parametrize("protocol", ["penstock", "plain"])
def test_killed_after_a_chunk_went_into_quarantine(protocol: str, database: str, tmp_path: Path) -> None:
    receiver = LedgerReceiver() if protocol == "penstock" else KeyedReceiver()

    def refuse(seen: Seen) -> Answered | None:
        refused = seen.method == "POST" and b'"id":120,' in seen.decoded
        return Answered.of(422, {"detail": "no such order"}) if refused else None

    receiver.before.append(refuse)
    options = f", refused: quarantine, protocol: {protocol}"
    with Served(receiver) as served, HttpShop.open(database, tmp_path, served.url, options=options) as shop:
        shop.command.kill_at("http.chunk_quarantined", "run", "shop.yaml")
        receiver.before.clear()
        shop.run()
        listed = shop.command.run("quarantine", "list", "shop.yaml", "--limit", "2")
        assert "50 rows in quarantine" in listed.out
        assert "id=101: status 422" in listed.out
        done = shop.command.run("quarantine", "replay", "shop.yaml")
        assert done.code == 0, done.err
        assert "50 created" in done.out
        found = ids_of(receiver.readable["orders"]) if isinstance(receiver, LedgerReceiver) else None
        found = found or [row["id"] for row in receiver.rows("/")]  # type: ignore[union-attr]  # of the other kind
        assert found == [id_ for id_ in shop.ids() if not 101 <= id_ <= 150] + [*range(101, 151)]
        assert "no rows in quarantine" in shop.command.run("quarantine", "list", "shop.yaml").out
