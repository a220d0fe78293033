"""What Pydantic found, in plain words, without showing what must stay hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import ErrorDetails

from penstock.config.document import Document
from penstock.config.mistakes import UNKNOWN, Path, nearest, suggest, visible

#: what was expected, by Pydantic's name for the error
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "none_required": "nothing",
    "path_type": "a path",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_CHOICES = re.compile(r"'((?:[^'\\]|\\.)*)'")
MISSING = "required key is missing"


def mistakes_of(
    errors: Iterable[ErrorDetails], model: type[BaseModel], data: Any, root: Path, document: Document
) -> list[tuple[Path, str]]:
    """Each mistake as its path from the top of the file and its words."""
    placed = places_of(errors, data)
    paths = {path for path, _ in placed}
    found: dict[Path, list[ErrorDetails]] = {}
    for path, error in placed:
        # A union complains once per member: a member that fits further in is the one that was meant.
        if _wanted(error) and any(len(p) > len(path) and p[: len(path)] == path for p in paths):
            continue
        found.setdefault(path, []).append(error)
    result: list[tuple[Path, str]] = []
    for path, at_path in found.items():
        whole = root + path
        if not _repeats(whole, at_path, document):
            described = _Described(document, whole, _value(data, path), _hides(model, path))
            result.append((whole, described.words(at_path, _fields(model, path[:-1]))))
    return result


def places_of(errors: Iterable[ErrorDetails], data: Any) -> list[tuple[Path, ErrorDetails]]:
    """Each error with its path within the data."""
    return [(_path(error["loc"], data), error) for error in errors]


def expected(wanted: str, value: Any, document: Document, path: Path) -> str:
    """`expected text, not 5`."""
    return _Described(document, path, value, hidden=False).expected([wanted])


def shown(value: Any, document: Document, path: Path) -> str:
    """A value as it may be printed."""
    return _Described(document, path, value, hidden=False).shown()


def _repeats(path: Path, errors: list[ErrorDetails], document: Document) -> bool:
    if path in document.broken:
        return True
    whole = any(error["type"] in ("value_error", "assertion_error") for error in errors)
    return whole and any(broken[: len(path)] == path for broken in document.broken)


def _wanted(error: ErrorDetails) -> str | None:
    """What would have been right, where Pydantic knows it."""
    if error["type"] in ("literal_error", "enum"):
        return str(error["ctx"]["expected"])
    return _EXPECTED.get(error["type"])


class _Described:
    """One value, and how to speak of it."""

    def __init__(self, document: Document, path: Path, value: Any, hidden: bool) -> None:
        self._document = document
        self._path = path
        self._value = value
        self._hidden = hidden

    def words(self, errors: list[ErrorDetails], siblings: Iterable[str]) -> str:
        wanted = list(dict.fromkeys(filter(None, map(_wanted, errors))))
        if not wanted:
            return self._one(errors[0], siblings)
        near = None
        if isinstance(self._value, str) and not self._secret:
            near = nearest(self._value, _CHOICES.findall(" ".join(wanted)))
        return self.expected(wanted) + (f"; did you mean '{near}'?" if near else "")

    def expected(self, wanted: list[str]) -> str:
        return f"expected {' or '.join(wanted)}, not {self.shown()}"

    def _one(self, error: ErrorDetails, siblings: Iterable[str]) -> str:
        kind, context = error["type"], error.get("ctx", {})
        if kind == "missing":
            return MISSING
        if kind == "extra_forbidden":
            return f"{UNKNOWN}; {suggest(str(self._path[-1]), siblings, 'valid keys')}"
        if kind in _BOUNDS:
            words, name = _BOUNDS[kind]
            bound = context[name]
            whole = isinstance(bound, float) and bound.is_integer()
            return self.expected([f"{words} {int(bound) if whole else bound}"])
        if kind in ("string_too_short", "too_short") and context.get("min_length") == 1:
            return "must not be empty"
        if kind in ("value_error", "assertion_error"):
            return self._without_secrets(str(context["error"]))
        return self._without_secrets(error["msg"][:1].lower() + error["msg"][1:])

    @property
    def _secret(self) -> bool:
        return self._hidden or bool(self._document.variables(self._path))

    def shown(self) -> str:
        variables = self._document.variables(self._path)
        if variables:
            return "the value of " + ", ".join(f"${{{name}}}" for name in variables)
        match self._value:
            case None:
                return "nothing"
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case bool():
                return "true or false" if self._hidden else str(self._value).lower()
            case int() | float():
                return "a number" if self._hidden else f"{self._value}"
            case _:
                return "this text" if self._hidden else f"'{visible(str(self._value))}'"

    def _without_secrets(self, text: str) -> str:
        """A validator's own words. It was told the values, so whatever came from a variable is struck out."""
        hidden = {
            value
            for path, place in self._document.places.items()
            if place.variables and isinstance(value := _value(self._document.data, path), str)
        }
        if self._secret:
            # Of the value itself its pieces too: a validator may quote the password in a URL.
            hidden |= {str(self._value), *re.findall(r"[^\s:/@?&=,;]{3,}", str(self._value))}
        hidden |= {repr(value)[1:-1] for value in hidden}
        for value in sorted(filter(None, hidden), key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", text)
        return visible(text, most=400)


def _path(loc: tuple[str | int, ...], data: Any) -> Path:
    """Where in the data an error is. Pydantic's own steps, such as the member of a union, are left out."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        inside = isinstance(data, Mapping) and step in data
        if inside or (isinstance(data, list) and isinstance(step, int) and step < len(data)):
            path.append(step)
            data = data[step]
        elif last and isinstance(data, Mapping) and isinstance(step, str) and step.isidentifier():
            path.append(step)  # a key that is missing
    return tuple(path)


def _value(data: Any, path: Path) -> Any:
    for step in path:
        if isinstance(data, Mapping):
            data = data.get(str(step))
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def _annotation(model: type[BaseModel], path: Path) -> Any:
    """The type that a model gives to what lies at a path."""
    here: Any = model
    for step in path:
        for inner in _members(here):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                fields = {(field.alias or name): field for name, field in inner.model_fields.items()}
                if step in fields:
                    here = fields[str(step)].annotation
                    break
    return here


def _members(annotation: Any) -> list[Any]:
    """A type and every type inside it: of a union, a list, a mapping."""
    return [annotation, *(member for inner in get_args(annotation) for member in _members(inner))]


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    for inner in _members(_annotation(model, path)):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return [field.alias or name for name, field in inner.model_fields.items()]
    return []


def _hides(model: type[BaseModel], path: Path) -> bool:
    return any(inner in (SecretStr, SecretBytes) for inner in _members(_annotation(model, path)))
