"""Pauses between tries."""

from __future__ import annotations

import time

import pytest

from penstock.core.retry import Backoff, Retry
from penstock.errors import StreamFailed
from penstock.links.pause import iterate_tries, pause


def test_a_pause_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    backoff = Backoff(2.0, 2.0, jitter=0)
    pause(backoff, 1)
    pause(backoff, 1, at_most=0.5)
    pause(backoff, 1, at_most=-1.0)
    pause(backoff, 1, at_least=7.0)
    assert slept == [2.0, 0.5, 0.0, 7.0]


def test_a_pause_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(StreamFailed, match="because the run is to end"):
        pause(Backoff(600.0, 600.0, jitter=0), 1, is_cancelled=lambda: len(slept) == 3)
    assert sum(slept) < 1


def test_tries_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert list(iterate_tries(Retry(4, Backoff(0.1, 0.2, jitter=0)))) == [1, 2, 3, 4]
    assert slept == [0.1, 0.2, 0.2]
