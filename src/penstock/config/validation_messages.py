"""Turns Pydantic's errors into messages that do not reveal secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from penstock.config.document import Document, resolve
from penstock.config.mistakes import SYNONYMS, UNKNOWN, Path, visible
from penstock.core.names import nearest, suggest

#: the expected value by Pydantic's error type
_EXPECTED = {
    "string_type": "a string",
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
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_CHOICES = re.compile(r"'((?:[^'\\]|\\.)*)'")
MISSING = "required key is missing"
_NUMBERS = {"a whole number", "a number"}
#: variables in the syntax of other tools, and typographic quotes
_OTHER_VARIABLES = re.compile(r"\$[A-Za-z_]\w*|%\w+%|.?\{\{.*\}\}")
_OTHER_QUOTES = tuple("\u2018\u2019\u201c\u201d\u00ab\u201e")
#: common parts of URLs that are not secret
_NO_SECRETS = {"postgresql", "postgres", "jdbc", "5432"}


def mistakes_of(
    errors: Iterable[ErrorDetails], model: type[BaseModel], data: Any, root: Path, document: Document
) -> list[tuple[Path, str]]:
    """The path from the top of the file and the message of each mistake."""
    placed = locate_errors(errors, data)
    paths = {path for path, _ in placed}
    by_path: dict[Path, list[ErrorDetails]] = {}
    for path, error in placed:
        # A union reports one error per member. An error deeper inside belongs to the member that was meant.
        if _wanted(error) and any(len(p) > len(path) and p[: len(path)] == path for p in paths):
            continue
        by_path.setdefault(path, []).append(error)
    result: list[tuple[Path, str]] = []
    for path, at_path in by_path.items():
        whole = root + path
        if not _repeats(whole, at_path, document):
            message = _ValueMessage(document, whole, _value(data, path), _hides(model, path), _fields(model, path))
            result.append((whole, message.text(at_path, _fields(model, path[:-1]))))
    return result


def locate_errors(errors: Iterable[ErrorDetails], data: Any) -> list[tuple[Path, ErrorDetails]]:
    """Each error with its path in the data."""
    return [(_path(error["loc"], data), error) for error in errors]


def offers_null(error: ErrorDetails) -> bool:
    """Whether `null` is one of the expected choices."""
    return error["type"] == "literal_error" and "null" in _CHOICES.findall(str(error["ctx"]["expected"]))


def expected(wanted: str, value: Any, document: Document, path: Path) -> str:
    """`expected a string, not 5`."""
    return _ValueMessage(document, path, value, hidden=False).expected([wanted])


def shown(value: Any, document: Document, path: Path) -> str:
    """A value as it may be printed, without secrets."""
    return _ValueMessage(document, path, value, hidden=False).shown()


def remove_secrets(text: str, document: Document, path: Path) -> str:
    """Remove the values of variables from a message about a value."""
    return _ValueMessage(document, path, None, hidden=False).remove_secrets(text)


def example(model: type[BaseModel], path: Path) -> str:
    """An example for a missing key; empty if the model has none."""
    for field in (model.model_fields.get(str(path[-1])), *_named(model, str(path[-1]))):
        if field is not None and field.examples:
            from penstock.config.annotated import to_yaml

            return f"; for example {path[-1]}: {to_yaml(field.examples[0])}"
    return ""


def _named(model: type[BaseModel], name: str) -> list[FieldInfo]:
    """The fields with this name in the nested mappings of a model."""
    inner = [i for f in model.model_fields.values() for i in _members(f.annotation)]
    models = [i for i in inner if isinstance(i, type) and issubclass(i, BaseModel)]
    return [field for m in models for key, field in m.model_fields.items() if (field.alias or key) == name]


def _repeats(path: Path, errors: list[ErrorDetails], document: Document) -> bool:
    if path in document.broken:
        return True
    whole = any(error["type"] in ("value_error", "assertion_error") for error in errors)
    return whole and any(broken[: len(path)] == path for broken in document.broken)


def _wanted(error: ErrorDetails) -> str | None:
    """The expected value, if Pydantic reports it."""
    if error["type"] in ("literal_error", "enum"):
        return str(error["ctx"]["expected"])
    return _EXPECTED.get(error["type"])


class _ValueMessage:
    """Composes messages about one value."""

    def __init__(self, document: Document, path: Path, value: Any, hidden: bool, keys: Sequence[str] = ()) -> None:
        self._document = document
        self._path = path
        self._value = value
        self._hidden = hidden
        #: the keys of the mapping that is expected here
        self._keys = keys

    def text(self, errors: list[ErrorDetails], siblings: Iterable[str]) -> str:
        wanted = list(dict.fromkeys(filter(None, map(_wanted, errors))))
        message = self.expected(wanted) if wanted else self._one(errors[0], siblings)
        return message + self._syntax_hint()

    def expected(self, wanted: list[str]) -> str:
        hint = self._hint(wanted)
        return f"expected {' or '.join(wanted)}, not {self.shown()}" + (f"; {hint}" if hint else "")

    def _hint(self, wanted: list[str]) -> str | None:
        """What to write instead, if it is known."""
        if "a mapping" in wanted:
            return self._mapping_hint()
        if self._value is None:
            return "give it a value"
        if self._secret:
            return None
        match self._value:
            case dict() if "a list" in wanted:
                return "write a list: [a, b]"
            case bool() | int() | float() if "a string" in wanted:
                return f'put it in quotes: "{self.shown()}"'
            case str() if "a list" in wanted and wanted[0] == "a list":
                return f"write a list: {json.dumps([visible(self._value)], ensure_ascii=False)}"
            case str() if _NUMBERS & {*wanted} and isinstance(resolve(self._value), int | float):
                return "write it without quotes"
            case str() if "true or false" in wanted:
                near = nearest(self._value, ["true", "false"], synonyms=SYNONYMS)
                return f"did you mean {near}?" if near else None
            case str():
                near = nearest(self._value, _CHOICES.findall(" ".join(wanted)), synonyms=SYNONYMS)
                return f"did you mean '{near}'?" if near else None
        return None

    def _mapping_hint(self) -> str | None:
        first = self._value[0] if isinstance(self._value, list) and self._value else None
        named = first.get("name") if isinstance(first, dict) else first
        if isinstance(named, str) and self._path and self._path[-1] in ("pipelines", "streams"):
            name = visible(named)
            return f"write '{name}:' instead of '- {'name: ' * isinstance(first, dict)}{name}'"
        if self._value is None:
            return "write its keys below it, indented"
        return f"its keys: {', '.join(self._keys)}" if self._keys else "write it as 'key: value'"

    def _syntax_hint(self) -> str:
        """A hint about the YAML syntax that may have caused the mistake."""
        place = self._document.places.get(self._path)
        if place and place.cut:
            return "; ' #' starts a comment: quote the value if it is part of it"
        if not isinstance(self._value, str):
            return ""
        if self._value[:1] in _OTHER_QUOTES:
            return "; use the quotes \" or '"
        other = _OTHER_VARIABLES.fullmatch(self._value) and not self._document.variables(self._path)
        return "; write variables as ${NAME}" if other else ""

    def _one(self, error: ErrorDetails, siblings: Iterable[str]) -> str:
        kind, context = error["type"], error.get("ctx", {})
        if kind == "missing":
            return MISSING
        if kind == "extra_forbidden":
            return f"{UNKNOWN}; {suggest(str(self._path[-1]), siblings, 'valid keys', synonyms=SYNONYMS)}"
        if kind in _BOUNDS:
            words, name = _BOUNDS[kind]
            bound = context[name]
            whole = isinstance(bound, float) and bound.is_integer()
            return self.expected([f"{words} {int(bound) if whole else bound}"])
        if kind in ("string_too_short", "too_short") and context.get("min_length") == 1:
            return "must not be empty"
        if kind in ("string_too_short", "too_short") and isinstance(self._value, str):
            return f"must have at least {context['min_length']} characters"
        if kind in ("value_error", "assertion_error"):
            return self.remove_secrets(str(context["error"]))
        return self.remove_secrets(error["msg"][:1].lower() + error["msg"][1:])

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
                place = self._document.places.get(self._path)
                quoted = (
                    f' (a name with dots needs quotes: "{visible(place.implied)}")' if place and place.implied else ""
                )
                return f"a mapping{quoted}"
            case list():
                return "a list"
            case bool():
                return "true or false" if self._hidden else str(self._value).lower()
            case int() | float():
                return "a number" if self._hidden else f"{self._value}"
            case _:
                return "this string" if self._hidden else f"'{visible(str(self._value))}'"

    def remove_secrets(self, text: str) -> str:
        """Remove secrets from a validator's message: replace everything that came from a variable."""
        hidden = {
            value
            for path, place in self._document.places.items()
            if place.variables and isinstance(value := _value(self._document.data, path), str)
        }
        if self._secret:
            # Remove parts of the value too: a validator may quote the password in a URL.
            hidden |= {str(self._value), *re.findall(r"[^\s:/@?&=,;]{3,}", str(self._value))} - _NO_SECRETS
        hidden |= {repr(value)[1:-1] for value in hidden}
        for value in sorted(filter(None, hidden), key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", text)
        return visible(text, most=400)


def _path(loc: tuple[str | int, ...], data: Any) -> Path:
    """The path of an error in the data, without Pydantic's own steps such as the member of a union."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        inside = isinstance(data, Mapping) and step in data
        if inside or (isinstance(data, list) and isinstance(step, int) and step < len(data)):
            path.append(step)
            data = data[step]
        elif last and isinstance(data, Mapping) and isinstance(step, str) and step.isidentifier():
            path.append(step)  # a missing key
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
    """The type of the value at a path of a model."""
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
    """A type and every type nested in it."""
    return [annotation, *(member for inner in get_args(annotation) for member in _members(inner))]


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    for inner in _members(_annotation(model, path)):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return [field.alias or name for name, field in inner.model_fields.items()]
    return []


def _hides(model: type[BaseModel], path: Path) -> bool:
    return any(inner in (SecretStr, SecretBytes) for inner in _members(_annotation(model, path)))
