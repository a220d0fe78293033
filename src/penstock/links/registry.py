"""Finds a source or a sink by the `type` that a pipeline file names: built in, or of a third party."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType


def load(type_: str, builtin: Mapping[str, str], group: str) -> ModuleType:
    """The module of a type; KeyError if there is none. Third parties register an entry point of the group."""
    if type_ in builtin:
        return import_module(builtin[type_])
    from importlib.metadata import entry_points  # slow: only when the name is not ours

    for entry in entry_points(group=group):
        if entry.name == type_:
            module: ModuleType = entry.load()
            return module
    raise KeyError(type_)


def types(builtin: Mapping[str, str], group: str) -> list[str]:
    """Every known type, sorted: the built-in ones and those of third parties."""
    from importlib.metadata import entry_points  # slow: only messages, the schema and `init` list types

    return sorted({*builtin, *(entry.name for entry in entry_points(group=group))})
