"""An API's times as whole numbers, which is how ranges are cut: seconds, milliseconds or coarser steps since 1970."""

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
    """How an API writes times. A time is the number of whole steps since 1970; a fraction of a step is cut off.

    Filters are exact to a step, so that a range can be cut at any of them. A step is a second, or a millisecond where
    the API counts those; where the API's filter is coarser, it is as many seconds as follow the name: `iso/86400`.
    """

    #: seconds, milliseconds or iso; and the seconds of a coarser step
    name: str

    @property
    def kind(self) -> str:
        """How a time is written: seconds, milliseconds or iso."""
        return self.name.partition("/")[0]

    @property
    def ticks(self) -> int:
        """How many of the numbers that the API writes a second has."""
        return 1000 if self.kind == "milliseconds" else 1

    @property
    def step(self) -> int:
        """How many of those numbers a step has."""
        seconds = self.name.partition("/")[2]
        return int(seconds) * self.ticks if seconds else 1

    def read(self, value: object) -> int:
        """A time from the value in a record; ValueError if it is not one."""
        if isinstance(value, bool) or value is None:
            raise ValueError(f"{value!r} is not a time")
        if self.kind == "iso":
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is not an RFC 3339 timestamp")
            found = datetime.fromisoformat(value)
            return math.floor((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()) // self.step
        if isinstance(value, str):
            value = float(value) if "." in value else int(value)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is not a number")
        return math.floor(value) // self.step

    def spell(self, time: int) -> str:
        """A time as a query parameter has it."""
        if self.kind == "iso":
            return datetime.fromtimestamp(time * self.step, UTC).isoformat().replace("+00:00", "Z")
        return str(time * self.step)

    def of(self, moment: datetime) -> int:
        """The step that a moment lies in."""
        return math.floor(moment.timestamp() * self.ticks) // self.step

    def steps_of(self, seconds: float) -> int:
        """The number of steps that these seconds fit into."""
        return math.ceil(seconds * self.ticks / self.step)

    def moment(self, time: int) -> datetime:
        """The beginning of a step."""
        return datetime.fromtimestamp(time * self.step / self.ticks, UTC)

    def show(self, time: int) -> str:
        """A time for people."""
        return self.moment(time).isoformat(timespec="milliseconds" if self.ticks > self.step else "seconds")[:-6] + "Z"

    def doubt(self, time: int, now: int) -> str | None:
        """Why a record's time is probably in another unit; None: it is plausible."""
        if self.kind == "iso":
            return None  # the text itself says what it is
        if (time - now) * self.step > max(86400 * self.ticks, self.step):
            return f"lies after the server's clock ({self.show_far(time)})"
        if (time + 1) * self.step <= EARLIEST_SECONDS * self.ticks:
            return f"lies before 1990 ({self.show_far(time)})"
        return None

    def other_unit(self, time: int) -> str | None:
        """The unit that a time is probably in, if it is not this one."""
        written = time * self.step
        if self.kind == "seconds" and written >= LATEST_SECONDS:
            return "milliseconds"
        if self.kind == "milliseconds" and EARLIEST_SECONDS <= written < LATEST_SECONDS:
            return "seconds"
        return None

    def show_far(self, time: int) -> str:
        try:
            return self.show(time)
        except (ValueError, OverflowError, OSError):
            return f"in the year {1970 + time * self.step // self.ticks // 31_556_952}"
