"""Where rows come from. Each source is a module with `Options`, `StreamOptions` and `build`; this is their registry."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from penstock.links import registry

#: built-in sources by the `type` a pipeline file names
TYPES: Mapping[str, str] = {
    "files": "penstock.sources.files",
    "lake": "penstock.sources.lake",
    "outbox": "penstock.sources.outbox",
    "postgres": "penstock.sources.postgres",
    "rest": "penstock.sources.rest",
    "stripe": "penstock.sources.stripe",
    "wal": "penstock.sources.wal",
}


def load(type_: str) -> ModuleType:
    """The module of a source, built in or an entry point of `penstock.sources`; KeyError if there is none."""
    return registry.load(type_, TYPES, "penstock.sources")


def types() -> list[str]:
    """Every known type of source, sorted, with those of third parties."""
    return registry.types(TYPES, "penstock.sources")
