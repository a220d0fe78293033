"""Generates the tables of keys in the reference page, each below its marker.

A marker names a mapping as `models` does: `<!-- keys: sink lake upkeep -->`. The table is the lines below it that
begin with `|`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

from pydantic import BaseModel

from penstock.config.keys import Key, keys
from penstock.config.load import Registry
from penstock.config.models import FileKeys, PipelineKeys, StreamKeys

_MARKED = re.compile(r"(?P<marker><!-- keys: (?P<name>[^>]+?) -->\n)\n?(?:\|.*\n)*")


def tables_in(page: str) -> list[str]:
    """The names of the mappings whose tables a page contains."""
    return [match["name"] for match in _MARKED.finditer(page)]


def fill_tables(page: str, models: Mapping[str, type[BaseModel]]) -> str:
    """Regenerate the tables of a page; KeyError if a marker names no mapping."""
    return _MARKED.sub(lambda match: match["marker"] + table(models[match["name"]]), page)


def table(model: type[BaseModel]) -> str:
    """A model's keys as a Markdown table."""
    rows = [f"| `{key.name}` | {_default(key)} | {key.meaning} |\n" for key in keys(model)]
    return "\n| key | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.default_text:
        return key.default_text
    if isinstance(key.field.default, timedelta):
        days = key.field.default / timedelta(days=1)
        return f"{days:g} days"
    if key.default is None:
        return "none"
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


def models(sources: Registry, sinks: Registry) -> dict[str, type[BaseModel]]:
    """The model of every mapping of a file by its name in the reference, such as `source lake catalog`."""
    tops: list[tuple[str, type[BaseModel]]] = [
        ("file", FileKeys),
        ("pipeline", PipelineKeys),
        ("stream", StreamKeys),
    ]
    for side, registry in (("source", sources), ("sink", sinks)):
        for type_ in registry.types():
            module = registry.load(type_)
            tops += [(f"{side} {type_}", module.Options), (f"{side} {type_} streams", module.StreamOptions)]
    return {name: model for top, whole in tops for name, model in _within(top, whole)}


def _within(name: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield name, model
    for key in keys(model):
        if key.model is not None:
            yield from _within(key.name if name == "file" else f"{name} {key.name}", key.model)
