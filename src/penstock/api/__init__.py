"""The Python interface: runs, and sources as DataFrames. `penstock` re-exports it."""

from penstock.api.frames import read
from penstock.api.runs import Run, RunFailed, Summary, run, sync
from penstock.errors import PenstockError

__all__ = ["PenstockError", "Run", "RunFailed", "Summary", "read", "run", "sync"]
