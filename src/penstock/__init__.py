"""penstock: an incremental sync engine on Spark that moves only what changed, exactly once.

What can be called from Python (`run`, `sync`, `read`) is in `penstock.api` and is imported when it is first used.
"""

__version__ = "0.1.0"

_API = ("PenstockError", "Run", "RunFailed", "Summary", "read", "run", "sync")


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("penstock.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_API])
