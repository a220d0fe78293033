"""The keys of an options model, for the JSON Schema, the annotated example and the reference.

A description may end with `; default: …` where the default cannot be written as a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

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
    def default_text(self) -> str | None:
        """The text of the default, where the description has one."""
        return (self.field.description or "").partition(_DEFAULT)[2] or None

    @property
    def default(self) -> Any:
        """The default as written in the file; None if there is none."""
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
    def is_by_name(self) -> bool:
        """Whether the value is a mapping of names to mappings with the keys of `model`."""
        return get_origin(self.field.annotation) is dict

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of mappings with the keys of `model`."""
        return get_origin(self.field.annotation) is tuple and self.model is not None

    @property
    def model(self) -> type[BaseModel] | None:
        """The model of the key's value, if it is a mapping, or a list of mappings."""
        for inner in (self.field.annotation, *get_args(self.field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                return inner
        return None


def keys(model: type[BaseModel]) -> list[Key]:
    """The keys of a model, in order."""
    return [Key(field.alias or name, field) for name, field in model.model_fields.items()]


def _as_size(count: int) -> int | str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return count
