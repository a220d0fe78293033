"""Where a store lies, and the one point at which a database's errors become ours.

A place knows how to reach its database and what its errors mean; what is in the tables is not its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from penstock.errors import PenstockError, StoreRefused
from penstock.store.records import Inconsistent

UNCHANGED = "It was not changed, and it is not taken for an empty one."
#: seconds to wait for another writer
LOCK_WAIT_SECONDS = 30.0


class StoreLocation(Protocol):
    """A file or a server."""

    @property
    def schema(self) -> str | None:
        """The schema that holds our tables; None: the database itself."""
        ...

    @property
    def address(self) -> str:
        """The place without a password, in one spelling."""
        ...

    def missing(self) -> str | None:
        """The place in words if no store was ever made there; None: something is there. Makes nothing."""
        ...

    def make_ready(self) -> None:
        """See that something is there that may be a store, or can be made one."""
        ...

    def engine(self) -> Engine:
        """An engine; its writing transactions have the execution option `writes`."""
        ...

    def alone(self, connection: Connection) -> None:
        """Keep others from changing the schema until the end of the transaction."""
        ...

    def admit(self, connection: Connection, tables: Sequence[str]) -> None:
        """Make ready for our first tables beside these, none of them ours; StoreRefused if we must not."""
        ...

    def refusal(self, error: BaseException | None) -> PenstockError | None:
        """What an error of the database means; None: a defect of ours."""
        ...

    def damaged(self, how: str) -> StoreRefused: ...

    def newer(self, how: str) -> StoreRefused: ...

    def abandoned(self, how: str) -> StoreRefused:
        """A store of a revision that no migration leads on from."""
        ...


@contextmanager
def translate_errors(place: StoreLocation) -> Iterator[None]:
    """Turn what the database says into errors with a next step."""
    try:
        yield
    except DBAPIError as error:
        refusal = place.refusal(error.orig)
        if refusal is None:
            raise
        raise refusal from error
    except Inconsistent as error:
        raise place.damaged(str(error)) from error


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
