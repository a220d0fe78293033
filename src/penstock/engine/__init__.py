"""The gate, and the run around it: lease, limits, isolation, a clean stop. Knows ports and core only."""

from penstock.engine.run import Engine, Settings

__all__ = ["Engine", "Settings"]
