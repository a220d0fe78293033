"""The gate, and the run around it: lease, limits, isolation, a clean stop. Knows ports and core only."""

from penstock.engine.execution import Settings
from penstock.engine.run import Engine

__all__ = ["Engine", "Settings"]
