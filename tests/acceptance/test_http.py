"""Over HTTP to `penstock serve`: lost acknowledgements, and a sender whose store or spools are not what they were."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.links.http.protocol import decode_meta
from tests.acceptance.http_shop import HttpShop
from tests.harness.faults import Command, Outcome
from tests.harness.http_proxy import LOST_ANSWER, Fault
from tests.harness.http_receiver import KeyedReceiver, Served
from tests.harness.serving import serving

INBOX = """
store: .penstock/inbox.db
pipelines:
  inbox:
    source: {type: wal, directory: received}
    sink: {type: files, directory: out, format: ndjson}
    streams:
      orders: {columns: {id: int64, note: string, extra: int64}}
"""


@dataclass
class Wire:
    """A sender, and a receiver whose log is read into files."""

    shop: HttpShop
    receiver: Command

    @property
    def store(self) -> Path:
        return self.shop.folder / ".penstock" / "store.db"

    @property
    def spools(self) -> Path:
        return self.shop.folder / ".penstock" / "spools"

    def received(self) -> list[int]:
        """The ids that a reader of the log gets, in order."""
        done = self.receiver.run("run", "inbox.yaml")
        assert done.code == 0, done.err
        paths = sorted((self.receiver.folder / "out" / "orders").glob("*.ndjson"))
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]

    def forget_store(self) -> None:
        for path in self.store.parent.glob("store.db*"):
            path.unlink()

    def stopped(self) -> str:
        """What a run says that stops; nothing was sent."""
        sent = len(self.shop.proxy.posts)
        for verb in ("check", "run"):
            ended = self.shop.command.run(verb, "shop.yaml")
            assert ended.code == 1, ended
        assert len(self.shop.proxy.posts) == sent
        said = said_of(ended)
        assert "penstock state recover shop.yaml" in said
        return said

    def recover(self, *more: str) -> str:
        done = self.shop.command.run("state", "recover", "shop.yaml", "--yes", *more)
        assert done.code == 0, done.err
        return said_of(done)


def said_of(ended: Outcome) -> str:
    return " ".join((ended.out + ended.err).split())


@pytest.fixture
def wire(database: str, tmp_path: Path) -> Iterator[Wire]:
    receiver = Command(tmp_path / "receiver", "loop")
    receiver.folder.mkdir()
    (receiver.folder / "inbox.yaml").write_text(INBOX)
    with (
        serving(receiver, "--directory", "received") as url,
        HttpShop.open(database, tmp_path / "sender", url, options=", retries: 0") as shop,
    ):
        yield Wire(shop, receiver)


def test_an_acknowledgement_is_lost_and_rows_arrive(wire: Wire) -> None:
    shop = wire.shop
    shop.proxy.fail_next(Fault(), LOST_ANSWER)
    assert shop.command.run("run", "shop.yaml").code == 1
    assert [each.status for each in shop.proxy.posts] == [200, 200], "the receiver has taken both"
    lost = shop.proxy.posts[1]
    shop.arrive(100)
    shop.write(chunk_rows=7, slice_bytes=40_000, stream=", shape: {drop: [note]}", options=", compression: none")
    shop.run()
    again = shop.proxy.posts[2]
    assert (again.key, again.body, again.headers) == (lost.key, lost.body, lost.headers)
    assert shop.resent() == [lost.key]
    assert json.loads(shop.proxy.posts[0].answer)["complete"] is False
    assert wire.received() == shop.ids()


def test_the_receiver_knows_how_far_the_source_is_read(wire: Wire) -> None:
    wire.shop.run()
    last = [each for each in wire.shop.proxy.posts if json.loads(each.answer)["complete"]]
    metas = [decode_meta(each.headers["penstock-meta"]) for each in last]
    left = [meta["lag_rows"] for meta in metas]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1] == 0
    assert metas[-1]["cursor"] == "up to id 900"
    with urllib.request.urlopen(f"{wire.shop.proxy.target}/v1/lag", timeout=10) as answer:
        (stream,) = json.load(answer)["streams"]
    (source,) = stream["sources"]
    assert (source["source"], source["cursor"], source["lag_rows"]) == ("shop", "up to id 900", 0)


def test_a_store_is_restored_from_an_older_copy(wire: Wire) -> None:
    shop = wire.shop
    shop.run()
    shutil.copy(wire.store, shop.folder / "copy.db")
    shop.arrive(300)
    shop.run()
    wire.forget_store()
    shutil.copy(shop.folder / "copy.db", wire.store)
    shop.arrive(50)
    assert "the store is behind the sink" in wire.stopped()
    wire.recover()
    shop.run()
    assert wire.received() == shop.ids()
    assert shop.resent() == []


def test_a_store_is_lost(wire: Wire) -> None:
    shop = wire.shop
    shop.run()
    wire.forget_store()
    shop.arrive(50)
    assert "the store knows nothing of this stream" in wire.stopped()
    wire.recover()
    shop.run()
    assert wire.received() == shop.ids()
    assert shop.resent() == []


@pytest.mark.parametrize("spools", ["kept", "lost"])
def test_a_store_is_lost_while_a_slice_is_open_at_the_receiver(spools: str, wire: Wire) -> None:
    """With its spool it is finished, without it the receiver withdraws it."""
    shop = wire.shop
    shop.command.kill_at("http.chunk_sent", "run", "shop.yaml", nth=2)
    wire.forget_store()
    if spools == "lost":
        shutil.rmtree(wire.spools)
    shop.arrive(50)
    shop.write(chunk_rows=33)
    assert "received pieces of slice" in wire.stopped()
    said = wire.recover()
    assert ("has withdrawn slice" in said) == (spools == "lost")
    shop.run()
    assert wire.received() == shop.ids()


def test_a_sealed_spool_is_lost(wire: Wire) -> None:
    shop = wire.shop
    shop.command.kill_at("http.chunk_sent", "run", "shop.yaml", nth=2)
    shutil.rmtree(wire.spools)
    said = wire.stopped()
    assert "what was staged for it is gone or damaged; these pieces may have been delivered" in said
    assert "chunk 2 of" in said
    assert "has withdrawn slice" in wire.recover()
    shop.run()
    assert wire.received() == shop.ids()


# ---------------------------------------------------------------- receivers of other kinds


@pytest.fixture
def hooks(database: str, tmp_path: Path) -> Iterator[tuple[Wire, KeyedReceiver]]:
    receiver = KeyedReceiver()
    with (
        Served(receiver) as served,
        HttpShop.open(database, tmp_path / "sender", served.url, options=", protocol: plain") as shop,
    ):
        yield Wire(shop, Command(tmp_path, "loop")), receiver


def ids_at(receiver: KeyedReceiver) -> list[int]:
    return [row["id"] for row in receiver.rows("/")]


def test_a_foreign_receiver_and_an_older_or_a_lost_store(hooks: tuple[Wire, KeyedReceiver]) -> None:
    wire, receiver = hooks
    shop = wire.shop
    shop.run()
    shutil.copy(wire.store, shop.folder / "copy.db")
    shop.arrive(300)
    shop.run()
    wire.forget_store()
    shutil.copy(shop.folder / "copy.db", wire.store)
    assert "the store is behind the sink" in wire.stopped()
    wire.recover()
    shop.arrive(50)
    shop.run()
    wire.forget_store()
    assert "the store knows nothing of this stream" in wire.stopped()
    wire.recover()
    shop.arrive(50)
    shop.run()
    assert ids_at(receiver) == shop.ids()


def test_a_foreign_receiver_and_lost_spools(hooks: tuple[Wire, KeyedReceiver]) -> None:
    wire, receiver = hooks
    shop = wire.shop
    shop.run()
    shutil.rmtree(wire.spools)
    shop.arrive(50)
    assert "the record of what was sent to" in wire.stopped()
    assert "as the store says" in wire.recover()
    shop.run()
    assert ids_at(receiver) == shop.ids()


def test_a_foreign_receiver_and_a_lost_sealed_spool(hooks: tuple[Wire, KeyedReceiver]) -> None:
    """Nobody knows what has arrived but the operator: nothing is dropped without their word."""
    wire, receiver = hooks
    shop = wire.shop
    shop.command.kill_at("http.chunk_sent", "run", "shop.yaml", nth=2)
    for spool in wire.spools.rglob("*-staged-*"):
        shutil.rmtree(spool)
    assert "these pieces may have been delivered" in wire.stopped()
    refused = shop.command.run("state", "recover", "shop.yaml", "--yes")
    assert refused.code == 1
    assert "--drop-sealed" in said_of(refused)
    assert "chunk 2 of" in said_of(refused)
    wire.recover("--drop-sealed")
    shop.write(stream=", shape: {drop: [extra]}")  # another slice: the receiver does not know its keys
    shop.run()
    assert ids_at(receiver)[:100] == shop.ids()[:100], "what had arrived"
    assert ids_at(receiver)[100:] == shop.ids(), "all of the dropped slice again, as was said"


def test_explain_says_what_holds(hooks: tuple[Wire, KeyedReceiver]) -> None:
    command = hooks[0].shop.command
    gap = "exactly once only if the receiver leaves out a key that it has seen"
    assert gap in said_of(command.run("check", "shop.yaml"))
    assert "same key and the same bytes" in said_of(command.run("check", "shop.yaml", "--verbose"))
