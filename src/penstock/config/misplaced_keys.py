"""Finds the mapping to which a misplaced key belongs; used only to explain a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.config.load import Registry, names_of
from penstock.config.mistakes import Path
from penstock.config.models import FileKeys, PipelineKeys, StreamKeys
from penstock.shaping.options import Shape


def find_owner(key: str, path: Path, data: Any, sources: Registry, sinks: Registry) -> str | None:
    """The mapping to which a key at a path belongs; None if there is no such key."""
    if key == "type":
        return None  # every source and sink has it, and it is reported where it is missing
    return next((where for where, names in _candidates(path, data, sources, sinks) if key in names), None)


def looks_like_a_pipeline(value: Any) -> bool:
    return isinstance(value, dict) and bool({"source", "sink"} & value.keys())


def _candidates(path: Path, data: Any, sources: Registry, sinks: Registry) -> Iterator[tuple[str, set[str]]]:
    """The mappings with their keys, nearest first; mappings nested in options are not included."""
    top, pipeline = ("the top of the file", names_of(FileKeys)), ("a pipeline", names_of(PipelineKeys))
    match path:
        case ():
            yield pipeline
        case ("pipelines", name):
            yield top
            yield from _sides(data["pipelines"][name], sources, sinks)
        case ("pipelines", name, "source" | "sink" as side):
            yield pipeline
            yield top
            yield from (
                (where, keys) for where, keys in _sides(data["pipelines"][name], sources, sinks) if where != f"'{side}'"
            )
        case ("pipelines", name, "streams", _):
            yield from _sides(data["pipelines"][name], sources, sinks)
            yield pipeline
            yield "'shape', indented below it", names_of(Shape)
            for registry, word in ((sources, "from"), (sinks, "into")):
                for type_ in registry.types():
                    yield f"streams {word} {type_}", names_of(registry.load(type_).StreamOptions)


def _sides(body: Any, sources: Registry, sinks: Registry) -> Iterator[tuple[str, set[str]]]:
    modules = []
    for side, registry in (("source", sources), ("sink", sinks)):
        options = body.get(side) if isinstance(body, dict) else None
        type_ = options.get("type") if isinstance(options, dict) else None
        try:
            modules.append((side, registry.load(str(type_))))
        except KeyError:
            continue
    for side, module in modules:
        yield f"'{side}'", names_of(module.Options)
    yield "a stream", names_of(StreamKeys)
    for _, module in modules:
        yield "a stream", names_of(module.StreamOptions)
