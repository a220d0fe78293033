"""A spool that is truncated, has a flipped bit or is gone: the stream stops and says so; nothing is lost or doubled."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.rest_shop import RestShop


def damage(folder: Path, how: str) -> None:
    (spool,) = folder.rglob("*-gathered-*")
    file = next(spool.glob("records-*"))
    if how == "gone":
        shutil.rmtree(spool)
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[:-10])
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["gone", "truncated", "a flipped bit"])
def test_a_spool_is_damaged_before_the_restart(how: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write()
        shop.server.arrive("charges", 1000)
        shop.command.kill_at("gate.intended", "run", "shop.yaml", nth=2)
        damage(tmp_path, how)
        shop.server.arrive("charges", 100)
        for verb in ("check", "plan", "run"):
            stopped = shop.command.run(verb, "shop.yaml")
            said = " ".join((stopped.out + stopped.err).split())
            assert stopped.code == 1, (verb, said)
            assert "its gathered spool" in said
            assert "is gone or damaged" in said
        recovered = shop.command.run("state", "recover", "shop.yaml", "--yes")
        assert recovered.code == 0, recovered.err
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}


def test_a_replay_does_not_ask_the_api_again(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write(slice_bytes=1 << 24)
        shop.server.arrive("charges", 1000)
        shop.command.kill_at("gate.intended", "run", "shop.yaml")
        shop.server.forget_requests()
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert [each for each in shop.server.requests() if each["query"]["limit"] != "1"] == []
        assert shop.differences() == {}


@pytest.mark.parametrize("other", [None, 0, 503])
def test_a_signal_ends_a_long_pause_between_retries_at_once(other: int | None, tmp_path: Path) -> None:
    """Also where it is one of several streams, which are looked at at the same time."""
    endpoints = {"charges": {"status": 503}} | ({"refunds": {"status": other}} if other is not None else {})
    with RestShop.open(tmp_path, endpoints) as shop:
        shop.write(dict.fromkeys(endpoints, "{time: {lag: 0}}"))
        path = tmp_path / "shop.yaml"
        path.write_text(path.read_text().replace("retry_seconds: 0.01", "retry_seconds: 60"))
        running = shop.command.start("run", "shop.yaml")
        while not shop.server.requests():
            time.sleep(0.05)
        begun = time.monotonic()
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert ended.code == 143, ended.err
        assert time.monotonic() - begun < 10


def test_a_signal_while_pages_are_fetched_loses_nothing(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, latency=0.1) as shop:
        shop.write(slice_bytes=1 << 24)
        shop.server.arrive("charges", 2000)
        running = shop.command.start("run", "shop.yaml")
        while len(shop.server.requests()) < 6:
            time.sleep(0.05)
        running.signal(signal.SIGTERM)
        ended = running.end()
        assert ended.code == 143, ended.err
        shop.server.set_faults()
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}


def test_limits_end_a_run_with_more_to_do(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write(slice_bytes=1 << 24)
        shop.server.arrive("charges", 2000)
        done = shop.command.run("run", "shop.yaml", "--max-rows", "250", "--json")
        assert done.code == 0, done.err
        assert done.messages[-1]["has_more"] is True
        assert len(shop.rows()) == 250
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}
