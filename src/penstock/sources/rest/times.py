"""An API's times as whole numbers, which is how ranges are cut: seconds, or milliseconds since 1970."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

#: earlier times are a sign of another unit: 1990-01-01 in seconds
EARLIEST_SECONDS = 631_152_000
#: a larger number of seconds lies after the year 5000: milliseconds
LATEST_SECONDS = 100_000_000_000


@dataclass(frozen=True, slots=True)
class Unit:
    """How an API writes times. A time is the number of whole steps since 1970; a fraction of a step is cut off."""

    #: seconds, milliseconds or iso
    name: str

    @property
    def steps(self) -> int:
        """Steps in a second: filters are exact to a step, so that a range can be cut at any of them."""
        return 1000 if self.name == "milliseconds" else 1

    def read(self, value: object) -> int:
        """A time from the value in a record; ValueError if it is not one."""
        if isinstance(value, bool) or value is None:
            raise ValueError(f"{value!r} is not a time")
        if self.name == "iso":
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is not an RFC 3339 timestamp")
            found = datetime.fromisoformat(value)
            return math.floor((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        if isinstance(value, str):
            value = float(value) if "." in value else int(value)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is not a number")
        return math.floor(value)

    def spell(self, time: int) -> str:
        """A time as a query parameter has it."""
        if self.name == "iso":
            return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
        return str(time)

    def of(self, moment: datetime) -> int:
        """The step that a moment lies in."""
        return math.floor(moment.timestamp() * self.steps)

    def moment(self, time: int) -> datetime:
        return datetime.fromtimestamp(time / self.steps, UTC)

    def show(self, time: int) -> str:
        """A time for people."""
        return self.moment(time).isoformat(timespec="milliseconds" if self.steps > 1 else "seconds")[:-6] + "Z"

    def doubt(self, time: int, now: int) -> str | None:
        """Why a record's time is probably in another unit; None: it is plausible."""
        if self.name == "iso":
            return None  # the text itself says what it is
        day = 86400 * self.steps
        if time > now + day:
            return f"lies after the server's clock ({self.show_far(time)})"
        if time < EARLIEST_SECONDS * self.steps:
            return f"lies before 1990 ({self.show_far(time)})"
        return None

    def other_unit(self, time: int) -> str | None:
        """The unit that a time is probably in, if it is not this one."""
        if self.name == "seconds" and time >= LATEST_SECONDS:
            return "milliseconds"
        if self.name == "milliseconds" and EARLIEST_SECONDS <= time < LATEST_SECONDS:
            return "seconds"
        return None

    def show_far(self, time: int) -> str:
        try:
            return self.show(time)
        except (ValueError, OverflowError, OSError):
            return f"in the year {1970 + time // self.steps // 31_556_952}"
