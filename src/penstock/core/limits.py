"""Limits on one execution: how many rows, how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an execution ends although there is more to do."""

    #: at most this many rows; None: no limit
    max_rows: int | None = None
    #: begin no slice after this many seconds, and gather no longer; None: no limit
    time_limit: float | None = None

    def rows_left(self, moved: int) -> int | None:
        """How many rows may still be moved; None: any number."""
        return None if self.max_rows is None else max(0, self.max_rows - moved)

    def seconds_left(self, elapsed: float) -> float | None:
        """How long slices may still begin; None: without end."""
        return None if self.time_limit is None else max(0.0, self.time_limit - elapsed)

    def describe_reached(self, *, moved: int, elapsed: float) -> str | None:
        """Describe the limit that has been reached; None: none has."""
        if self.max_rows is not None and moved >= self.max_rows:
            return f"max_rows {self.max_rows}"
        if self.time_limit is not None and elapsed >= self.time_limit:
            return f"time_limit {self.time_limit:g} s"
        return None
