"""penstock from Python: the same runs as the command's, and sources as DataFrames. Exported by `penstock` itself."""

from penstock.api.frames import read
from penstock.api.runs import Run, RunFailed, Summary, run, sync
from penstock.errors import PenstockError

__all__ = ["PenstockError", "Run", "RunFailed", "Summary", "read", "run", "sync"]
