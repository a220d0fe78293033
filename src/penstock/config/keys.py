"""What a model of options says about its keys: for the schema, the example and the tables of the reference.

A description may end with `; default: …`, where the default is not a value that one could write down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.config.load import Registry
from penstock.config.models import FileKeys, PipelineKeys, StreamKeys
from penstock.core.sizes import shown_duration, size

_DEFAULT = "; default: "


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a mapping."""

    name: str
    field: FieldInfo

    @property
    def required(self) -> bool:
        return self.field.is_required()

    @property
    def meaning(self) -> str:
        return (self.field.description or "").partition(_DEFAULT)[0]

    @property
    def default_in_words(self) -> str | None:
        """Where there is no value to write down, or words say more."""
        return (self.field.description or "").partition(_DEFAULT)[2] or None

    @property
    def default(self) -> Any:
        """As one would write it in the file; None: there is none, or it is nothing."""
        value = self.field.get_default(call_default_factory=True)
        if value is PydanticUndefined or isinstance(value, BaseModel):
            return None
        if isinstance(value, timedelta):
            return shown_duration(value)
        if isinstance(value, int) and any(
            isinstance(m, BeforeValidator) and m.func is size for m in self.field.metadata
        ):
            return _as_size(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return list(value) or None if isinstance(value, tuple) else value or (value if value in (0, False) else None)

    @property
    def model(self) -> type[BaseModel] | None:
        """The model of the mapping that the key holds."""
        for inner in (self.field.annotation, *get_args(self.field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                return inner
        return None


def keys(model: type[BaseModel]) -> list[Key]:
    """The keys of a model, in its order."""
    return [Key(field.alias or name, field) for name, field in model.model_fields.items()]


def models(sources: Registry, sinks: Registry) -> dict[str, type[BaseModel]]:
    """Every mapping of a pipeline file by its name in the reference: `source lake catalog`, `sink files streams`."""
    tops: list[tuple[str, type[BaseModel]]] = [
        ("file", FileKeys),
        ("pipeline", PipelineKeys),
        ("stream", StreamKeys),
    ]
    for side, registry in (("source", sources), ("sink", sinks)):
        for type_ in sorted(registry.TYPES):
            module = registry.load(type_)
            tops += [(f"{side} {type_}", module.Options), (f"{side} {type_} streams", module.StreamOptions)]
    return {name: model for top, whole in tops for name, model in _within(top, whole)}


def _within(name: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield name, model
    for key in keys(model):
        if key.model is not None:
            yield from _within(key.name if name == "file" else f"{name} {key.name}", key.model)


def _as_size(count: int) -> int | str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return count
