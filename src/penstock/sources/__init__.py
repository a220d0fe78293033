"""Where rows come from. Each source is a module with `Options`, `StreamOptions`, `build`; the registry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

#: built-in sources by the `type` a pipeline file names
TYPES: Mapping[str, str] = {"postgres": "penstock.sources.postgres"}


def load(type_: str) -> ModuleType:
    """The module of a source; KeyError if there is none. Others join by entry point `penstock.sources`."""
    if type_ in TYPES:
        return import_module(TYPES[type_])
    from importlib.metadata import entry_points

    for entry in entry_points(group="penstock.sources"):
        if entry.name == type_:
            module: ModuleType = entry.load()
            return module
    raise KeyError(type_)
