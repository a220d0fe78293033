"""A slice's commit, tried again where another transaction was in the way or rows have to be left out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import SystemRandom

import psycopg

from penstock.core.outcome import Outcome
from penstock.links.postgres.write_connection import WriteConnection
from penstock.ports import Probe
from penstock.sinks.postgres.failures import RETRIED, bad_row, too_many
from penstock.sinks.postgres.filling import Unfit
from penstock.sinks.postgres.landing import Landing
from penstock.sinks.postgres.quarantine import MOST
from penstock.sinks.postgres.reasons import is_of_a_row
from penstock.sinks.postgres.sifting import Bad

#: how often a commit is tried that another transaction was in the way of
TRIES = 5
#: seconds by which the longest pause before another try grows
PAUSE = 0.1


@dataclass(frozen=True)
class Committing:
    """One commit of one slice."""

    writing: WriteConnection
    landing: Landing
    #: bad rows are put aside, and the others go on
    quarantines: bool
    probe: Probe

    def commit(self) -> Outcome:
        """What became of each row; psycopg.Error if the server would not."""
        bad: list[Bad] = []
        for tried in range(1, TRIES + 1):
            try:
                return self._once(bad)
            except (psycopg.Error, Unfit) as error:
                if is_of_a_row(error):
                    bad += self._found(error, bad, again=tried < TRIES)
                elif isinstance(error, psycopg.Error) and error.sqlstate in RETRIED and tried < TRIES:
                    # Not both at the same moment again.
                    time.sleep(SystemRandom().uniform(0, PAUSE * tried))
                else:
                    raise
        raise AssertionError("the last try returns or raises")

    def _once(self, bad: list[Bad]) -> Outcome:
        number = self.landing.slice.number
        with self.writing.transaction() as connection:
            self.landing.prepare(connection)
        self.probe.at("postgres.prepared", number=number)
        with self.writing.transaction() as connection:
            outcome = self.landing.land(connection, bad)
            self.probe.at("postgres.merged", number=number)
        self.probe.at("postgres.landed", number=number)
        return outcome

    def _found(self, error: psycopg.Error | Unfit, known: list[Bad], *, again: bool) -> list[Bad]:
        """The rows that are at fault, to be put aside; raises if they are not to be."""
        most = MOST + 1 if self.quarantines else 1
        with self.writing.transaction(keep=False) as connection:
            found = self.landing.sift(connection, known, most=most)
        if len(known) + len(found) > MOST:
            raise too_many(found[0], MOST, **self._where) from error
        if not self.quarantines or not found or not again:
            raise bad_row(error, found[0] if found else None, **self._where) from error
        return found

    @property
    def _where(self) -> dict[str, str]:
        landing = self.landing
        return {"table": str(landing.table), "pipeline": landing.pipeline, "stream": landing.slice.stream}
