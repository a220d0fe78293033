"""One table's upkeep: what each step is given, and what it says it did."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import shown_duration
from penstock.errors import PenstockError, StreamFailed
from penstock.lake.place import Place
from penstock.lake.space import is_full
from penstock.lake.standing import ReaderMark, Standing
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.ports import Mover, Probe, Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: nothing of a table's rows is ever at stake in a step that fails
UNHARMED = "Nothing was lost: the table is as good as before."


@dataclass(frozen=True)
class Work:
    """The table, and with what it is kept."""

    place: Place
    table: str
    options: UpkeepOptions
    spark: Spark
    mover: Callable[[], Mover]
    probe: Probe
    #: the time that ages are counted to
    now: datetime
    #: pass readers, and take younger orphans
    force: bool = False
    #: say what would be done, and do nothing
    dry_run: bool = False
    #: who takes the turn
    owner: str = field(default_factory=lambda: f"upkeep-{uuid.uuid4().hex[:12]}")

    @property
    def name(self) -> str:
        return f"{self.place.namespace}.{self.table}"

    def loaded(self) -> tuple[Table, Standing]:
        """The table as it is now; StreamFailed if it is gone."""
        from penstock.lake.tables import load, standing_of

        table = load(self.place, self.table)
        if table is None:
            raise self.failed("the table is not there any more", "see who dropped it")
        return table, standing_of(table)

    def unclear(self, error: BaseException, what: str = "") -> StreamFailed:
        """For a commit whose answer is not known: the disk was full, or else the answer was lost."""
        if is_full(error):
            return self.failed(f"no space left for {self.place.warehouse}", "free some space and run the upkeep again")
        step = f"{what}: " if what else ""
        return self.failed(f"{step}the catalog's answer was lost ({error})", "run the upkeep again")

    @contextmanager
    def full_disk_named(self) -> Iterator[None]:
        """A full disk as the StreamFailed that names it; everything else as it is."""
        try:
            yield
        except StreamFailed as error:
            if error.__cause__ is None or not is_full(error.__cause__):
                raise
            raise self.unclear(error.__cause__) from error
        except PenstockError:
            raise
        except Exception as error:
            if not is_full(error):
                raise
            raise self.unclear(error) from error

    def failed(self, what: str, step: str) -> StreamFailed:
        return StreamFailed(f"{self.name}: {what}", next_step=step, safe=UNHARMED)


@dataclass(frozen=True)
class Done:
    """What a step did, in words and in numbers."""

    step: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: why it could not be done
    error: PenstockError | None = None


def held_back(reader: ReaderMark, now: datetime) -> str:
    """A reader that keeps rows from being removed, in words."""
    since = datetime.fromisoformat(reader.at)
    ago = shown_duration(now - (since if since.tzinfo else since.replace(tzinfo=UTC)))
    return f"{reader.pipeline}/{reader.stream} has read up to {reader.mark} (last heard of {ago} ago)"


def counted(number: int, thing: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
