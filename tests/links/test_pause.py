"""Pauses between tries."""

from __future__ import annotations

import time

import pytest

from penstock.core.retry import Backoff
from penstock.links.pause import pause


def test_a_pause_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    backoff = Backoff(2.0, 2.0, jitter=0)
    pause(backoff, 1)
    pause(backoff, 1, at_most=0.5)
    pause(backoff, 1, at_most=-1.0)
    pause(backoff, 1, at_least=7.0)
    assert slept == [2.0, 0.5, 0.0, 7.0]
