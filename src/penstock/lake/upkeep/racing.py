"""Committing beside others: a lost race is tried again on the table as it is then; after two, the turn is taken.

The turn only keeps landings waiting. That nothing of theirs is undone is the business of each conditional commit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from penstock.lake import names
from penstock.lake.landing import NAP, PATIENT, take_turn
from penstock.lake.standing import Standing
from penstock.lake.tables import LostRace, Unclear, translated
from penstock.lake.upkeep.work import Work

if TYPE_CHECKING:
    from pyiceberg.table import Table

TRIES = 20
#: how long a turn holds landings back; a group of files takes seconds
TURN_SECONDS = 60.0
#: how long one waits for the turns of others
PATIENCE = 600.0

Outcome = TypeVar("Outcome")


def raced(work: Work, what: str, attempt: Callable[[Table, Standing], Outcome]) -> Outcome:
    """Let `attempt` commit on the table as it is now, again and again until no one else was first."""
    for lost in range(TRIES):
        try:
            if lost < PATIENT:
                return attempt(*work.loaded())
            with turn(work):
                return attempt(*work.loaded())
        except LostRace:
            work.probe.at("lake.upkeep_lost_race")
            time.sleep(random.uniform(0, NAP * min(lost + 1, 4)))
        except Unclear as error:
            raise work.unclear(error, what) from error
    raise work.failed(f"{what}: other writers came first {TRIES} times", "run the upkeep again when fewer are at work")


@contextmanager
def turn(work: Work) -> Iterator[None]:
    """Landings wait while this is open, or until it has expired."""
    _take(work)
    try:
        yield
    finally:
        _release(work)


def _take(work: Work) -> None:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        table, standing = work.loaded()
        other = standing.turn()
        if other is not None and other.owner != work.owner and other.until > datetime.now(UTC):
            time.sleep(NAP)
            continue
        try:
            take_turn(table, standing, work.owner, TURN_SECONDS, by="penstock upkeep")
        except LostRace:
            continue
        except Unclear as error:
            raise work.unclear(error) from error
        work.probe.at("lake.upkeep_turn_taken")
        return
    raise work.failed(
        f"other writers had the turn for {PATIENCE:.0f} seconds", "run the upkeep again when fewer are at work"
    )


def _release(work: Work) -> None:
    for _ in range(TRIES):
        table, standing = work.loaded()
        mine = standing.turn()
        if mine is None or mine.owner != work.owner:
            return
        try:
            with translated():
                table.transaction().remove_properties(names.TURN).commit_transaction()
        except LostRace:
            continue
        except Unclear:
            return  # it expires by itself
        return
