"""The Spark of one pipeline's run: its session and the mover on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.core.slices import Part, Receipt
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import Mover, Reader, Writer


class SparkRuntime:
    """A Spark session and the mover on it, each created on first use; both are cancelled and closed together."""

    def __init__(self, spark: SparkSessionProvider, make_mover: Callable[[SparkSessionProvider], Mover]) -> None:
        self.spark = spark
        self._make_mover = make_mover
        self._mover: Mover | None = None

    @property
    def workers(self) -> int:
        return self.spark.workers

    def begin(self) -> None:
        self._get_mover().begin()

    def warm(self) -> None:
        self._get_mover().warm()

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        return self._get_mover().move(reader, writer, parts)

    def cancel(self) -> None:
        if self._mover is not None:
            self._mover.cancel()
        self.spark.cancel()

    def close(self) -> None:
        if self._mover is not None:
            self._mover.close()
        self.spark.close()

    def _get_mover(self) -> Mover:
        if self._mover is None:
            self._mover = self._make_mover(self.spark)
        return self._mover
