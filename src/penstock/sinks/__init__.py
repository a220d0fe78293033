"""Where rows go. Each sink is a module with `Options`, `StreamOptions` and `build`; this is their registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from penstock.links import registry

#: built-in sinks by the `type` a pipeline file names
TYPES: Mapping[str, str] = {
    "files": "penstock.sinks.files",
    "http": "penstock.sinks.http",
    "lake": "penstock.sinks.lake",
    "postgres": "penstock.sinks.postgres",
}


def load(type_: str) -> ModuleType:
    """The module of a sink, built in or an entry point of `penstock.sinks`; KeyError if there is none."""
    return registry.load(type_, TYPES, "penstock.sinks")


def types() -> list[str]:
    """Every known type of sink, sorted, with those of third parties."""
    return registry.types(TYPES, "penstock.sinks")
