"""The Mover on Spark: every part is an Arrow pipe in a Python worker; only receipts come back.

No row enters the JVM or the driver. A part that fails is tried again by Spark; each try has names of its own, so
retried, speculative and zombie tasks are harmless.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from penstock import __version__
from penstock.core.slices import Part, Receipt
from penstock.errors import InputError, PenstockError
from penstock.links.spark.daemon import remove_zips_from_path
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import Reader, Writer


class SparkMover:
    """Moves parts on the process's Spark session, which the first slice starts if nobody has."""

    def __init__(self, provider: SparkSessionProvider) -> None:
        self.provider = provider

    @property
    def workers(self) -> int:
        return self.provider.workers

    def begin(self) -> None:
        self.provider.begin()

    def warm(self) -> None:
        self.provider.session()

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        if not parts:
            return []
        session = self.provider.session()
        pipe = pipe_of(payload_of(reader, writer, parts))

        def collect() -> Sequence[bytes]:
            # Not as a query: planning one and compiling its code takes Spark two seconds when it has just started.
            numbers = session.sparkContext.parallelize(range(len(parts)), len(parts))
            outcomes = numbers.mapPartitions(pipe).collect()
            self.provider.ask_cluster_size()
            return cast(Sequence[bytes], outcomes)

        return [_receipt(outcome) for outcome in self.provider.wait(collect, failed="a part could not be moved")]

    def cancel(self) -> None:
        self.provider.cancel()

    def close(self) -> None:
        self.provider.close()


def payload_of(reader: Reader, writer: Writer, parts: Sequence[Part]) -> bytes:
    """What workers are sent, with our version outside: theirs may not be able to read the rest."""
    return pickle.dumps((__version__, pickle.dumps((reader, writer, list(parts)))))


def pipe_of(payload: bytes) -> Callable[[Iterator[int]], Iterator[bytes]]:
    """What a worker runs: it is given the numbers of its parts."""

    def pipe(numbers: Iterator[int]) -> Iterator[bytes]:
        from penstock.links.spark.mover import run_parts

        return run_parts(payload, numbers)

    return pipe


def run_parts(payload: bytes, numbers: Iterator[int]) -> Iterator[bytes]:
    """Move parts one by one; what became of each, as `_receipt` reads it."""
    remove_zips_from_path()
    from penstock.links.pipe import carry

    version, inside = pickle.loads(payload)
    work = pickle.loads(inside) if version == __version__ else None
    for number in numbers:
        try:
            if work is None:
                raise _other_version(version)
            reader, writer, parts = work
            outcome = pickle.dumps(carry(reader, writer, parts[number]))
        except PenstockError as error:
            # A reason we know will not change by trying again: hand it to the driver as it is.
            outcome = pickle.dumps(error)
        yield outcome


def _other_version(version: str) -> InputError:
    return InputError(
        f"Spark's workers have penstock {__version__}, and this process has {version}",
        next_step=f"install penstock {version} for {sys.executable} on every machine of the cluster",
    )


def _receipt(outcome: bytes) -> Receipt:
    found = pickle.loads(outcome)
    if isinstance(found, PenstockError):
        raise found
    assert isinstance(found, Receipt)
    return found
