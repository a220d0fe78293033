"""Where rows go. Each sink is a module with `Options`, `StreamOptions` and `build`; this is their registry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

#: built-in sinks by the `type` a pipeline file names
TYPES: Mapping[str, str] = {"files": "penstock.sinks.files"}


def load(type_: str) -> ModuleType:
    """The module of a sink; KeyError if there is none. Third parties join by the entry point `penstock.sinks`."""
    if type_ in TYPES:
        return import_module(TYPES[type_])
    from importlib.metadata import entry_points

    for entry in entry_points(group="penstock.sinks"):
        if entry.name == type_:
            module: ModuleType = entry.load()
            return module
    raise KeyError(type_)
