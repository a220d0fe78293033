"""Spools: files that a source gathers or a sink stages, kept until the sink holds the slice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Spool(Protocol):
    """A spool that is being written, by one attempt of one process."""

    @property
    def path(self) -> str:
        """The folder to write files into. They are synced to disk and digested when the spool is closed."""
        ...


class Spools(Protocol):
    """A folder for the spools of one pipeline: local by default, a shared one by configuration.

    Small and picklable: workers stage into it. What is written is durable before its name is used.
    """

    def gather(self, stream: str, number: int, attempt: str) -> AbstractContextManager[Spool]:
        """Open a new spool for a slice with this number; it is removed if the block fails."""
        ...

    def close_gathered(self, spool: Spool) -> str:
        """Sync the spool's files, give it its final name, and return its digest."""
        ...

    def find_gathered(self, stream: str, digest: str) -> str | None:
        """Return the folder of a gathered spool; None: it is gone, or its files have changed."""
        ...

    def stage(self, stream: str, number: int, attempt: str) -> str:
        """Return the folder in which a sink stages one attempt; created if missing."""
        ...

    def find_staged(self, stream: str, number: int, attempt: str) -> str:
        """Return the same folder without creating it."""
        ...

    def write_seal(self, stream: str, number: int, slice_id: str, text: str) -> str:
        """Write a seal beside its spool. Returns the text that counts: an existing one stays."""
        ...

    def read_seals(self, stream: str) -> Sequence[str]:
        """Return the seals of a stream, lowest number first."""
        ...

    def remove_seal(self, stream: str, number: int, slice_id: str) -> None:
        """Remove a seal whose slice was withdrawn or dropped; no error if there is none."""
        ...

    def keep(self) -> str:
        """Return the folder for what a sink remembers beyond a slice; created if missing, never swept."""
        ...

    def find_kept(self) -> str:
        """Return the same folder without creating it."""
        ...

    def sweep(self, stream: str, number: int) -> None:
        """Remove spools and seals of slices up to this number. Only when the sink holds it."""
        ...


class NoSpools:
    """Stands in where nothing is gathered or sealed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("there is no place for spools here")
