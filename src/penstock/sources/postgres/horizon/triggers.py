"""Triggers that see a row before it is written, and which of them has the last word on a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sources.postgres.horizon.bodies import Expression, assignments, reads_the_clock, starts


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger that sees a row before it is written."""

    name: str
    #: as pg_trigger has it: O, A, R or D
    enabled: str
    insert: bool
    update: bool
    #: with every such row, whatever it holds and whichever columns an UPDATE names
    always: bool
    language: str
    function: str
    source: str
    arguments: Sequence[str] | None

    def fires(self, event: str, *, replica: bool) -> bool:
        return bool(getattr(self, event)) and self.enabled in ("AR" if replica else "OA")

    def sets(self, column: str) -> Expression | bool:
        """What it sets a column to: an expression, False: it leaves it alone, True: it may do anything."""
        if self.language == "c" and self.function == "moddatetime":
            return ("now", "(", ")") if column in (self.arguments or ()) else False
        found = assignments(self.source) if self.language == "plpgsql" else None
        if found is None:
            return True
        return found.get(column, False)


def keeper(triggers: Sequence[Trigger], column: str, *, replica: bool = False) -> Trigger | None:
    """The trigger that sets a column to the time with every update; None: no trigger does so for certain.

    `triggers` are in the order in which they fire. The last one that touches the column decides: a condition (WHEN, IF,
    UPDATE OF) lets some updates pass, and a body that is more than assignments may do anything.
    """
    found: Trigger | None = None
    for trigger in triggers:
        if not trigger.fires("update", replica=replica):
            continue
        value = trigger.sets(column)
        if value is False:
            continue
        stamps = isinstance(value, tuple) and (starts(value) or reads_the_clock(value))
        if not stamps:
            found = None
        elif trigger.always:
            found = trigger
    return found
