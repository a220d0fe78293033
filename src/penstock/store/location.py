"""Where a store lies, and the one point at which a database's errors become ours.

A location knows how to reach its database and what its errors mean. It does not know what is in the tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from penstock.errors import PenstockError, StoreRefused
from penstock.store.records import InconsistentRows

UNCHANGED = "It was not changed, and it is not taken for an empty one."
NOTHING_LOST = "Nothing was lost: what was recorded before stays recorded."
#: seconds to wait for another writer
LOCK_WAIT_SECONDS = 30.0
#: seconds after which a wait for another writer is reported
WAIT_REPORT_SECONDS = 3.0


class StoreLocation(ABC):
    """A file or a database on a server."""

    #: the schema that holds our tables; None: the database itself
    schema: str | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The location in messages, after "the store"."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The normalized address, without a password."""

    @property
    @abstractmethod
    def restore_hint(self) -> str:
        """The next step where the store is damaged."""

    @property
    @abstractmethod
    def replace_hint(self) -> str:
        """The next step where the store cannot be read any more and is to be rebuilt."""

    @abstractmethod
    def missing(self) -> str | None:
        """The location in messages if no store was ever made there; None: something is there. Makes nothing."""

    def prepare(self) -> None:
        """Check that something is there that may be a store, or make it; by default, connecting will tell."""
        return

    @abstractmethod
    def engine(self) -> Engine:
        """An engine; its writing transactions have the execution option `writes`."""

    def lock_schema(self, connection: Connection) -> None:
        """Keep others from changing the schema until the end of the transaction; by default, each writer locks all."""
        return

    @abstractmethod
    def admit_tables(self, connection: Connection, tables: Sequence[str]) -> None:
        """Prepare for our first tables beside these, none of them ours; StoreRefused if we must not make them."""

    @abstractmethod
    def explain(self, error: BaseException | None) -> PenstockError | None:
        """What an error of the database means; None: a defect of ours."""

    def refused(self, what: str, next_step: str, *, safe: str = UNCHANGED) -> StoreRefused:
        return StoreRefused(f"the store {self.name} {what}", safe=safe, next_step=next_step)

    def damaged(self, how: str) -> StoreRefused:
        return self.refused(f"is damaged: {how}", self.restore_hint)

    def busy(self, next_step: str) -> StoreRefused:
        what = f"is busy: another process has been writing to it for more than {LOCK_WAIT_SECONDS:g} s"
        return self.refused(what, next_step, safe="Nothing was lost: nothing was written.")

    def newer(self, how: str) -> StoreRefused:
        return self.refused(how, "upgrade penstock to at least that version")

    def abandoned(self, how: str) -> StoreRefused:
        """The error for a store of a revision from which no migration leads on."""
        return self.refused(f"{how}, which does not read stores of that revision any more", self.replace_hint)


@contextmanager
def translate_errors(location: StoreLocation) -> Iterator[None]:
    """Turn the database's errors into errors with a next step."""
    try:
        yield
    except DBAPIError as error:
        explained = location.explain(error.orig)
        if explained is None:
            raise
        raise explained from error
    except InconsistentRows as error:
        raise location.damaged(str(error)) from error


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def list_tables(tables: Sequence[str]) -> str:
    """The first three names, and whether there are more."""
    return ", ".join([*tables[:3], "…"] if len(tables) > 3 else tables)
