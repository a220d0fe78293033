"""A pipeline file with every key there is, each with its meaning, its type and its default: made from the models.

Keys without a value by default are written as `#key: value`, with no space: remove the `#` to use them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from penstock.config.keys import Key, keys
from penstock.config.load import Registry
from penstock.config.models import FileKeys, PipelineKeys, StreamKeys
from penstock.config.schema import Schema, schema

HEAD = """\
# Every key of a pipeline file, with what it means, what it may be, and its default.
# Made by `penstock schema --example`; do not edit. Most files need ten lines: this one is for looking things up.
#
# A line like `#key: value` is a key that has no value unless you give it one; the value is an example.
# Any value may be a variable: "${NAME}", "${NAME:-default}" or, from a file, "${file:/run/secrets/password}".
"""
WIDTH = 116
#: mappings whose keys follow: their type goes without saying
_WHOLE = ("pipelines", "source", "sink", "streams")
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*( [\w./-]+)*")
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
}


def annotated(sources: Registry, sinks: Registry) -> str:
    """The file. Each source and each sink is in one of its pipelines."""
    return "\n".join([HEAD.rstrip(), *_Writer(sources, sinks).file()]) + "\n"


class _Writer:
    def __init__(self, sources: Registry, sinks: Registry) -> None:
        self._sources = sources
        self._sinks = sinks
        self._schema = schema(sources, sinks)

    def file(self) -> Iterator[str]:
        at = self._schema["properties"]
        for key in keys(FileKeys):
            if key.name == "pipelines":
                yield from ("", *self._comment(key, at[key.name], ""), "pipelines:")
                yield from self._pipelines()
            else:
                yield ""
                yield from self._key(key, at[key.name], "")

    def _pipelines(self) -> Iterator[str]:
        known, into = sorted(self._sources.TYPES), sorted(self._sinks.TYPES)
        pairs = zip_longest(known, into)
        for source, sink in ((source or known[-1], sink or into[-1]) for source, sink in pairs):
            yield from ("", f"  {source}_to_{sink}:")
            yield from self._pipeline(source, sink)

    def _pipeline(self, source: str, sink: str) -> Iterator[str]:
        at = self._schema["$defs"]["pipeline"]["properties"]
        for key in keys(PipelineKeys):
            if key.name in ("source", "sink"):
                registry, type_ = (self._sources, source) if key.name == "source" else (self._sinks, sink)
                yield from ("", *self._comment(key, at[key.name], "    "), f"    {key.name}:", f"      type: {type_}")
                options = self._schema["$defs"][f"{key.name}.{type_}"]["properties"]
                yield from self._keys(registry.load(type_).Options, options, "      ")
            elif key.name == "streams":
                yield from ("", *self._comment(key, at[key.name], "    "), "    streams:", "      orders:")
                yield from self._stream(source, sink)
            else:
                yield ""
                yield from self._key(key, at[key.name], "    ")

    def _stream(self, source: str, sink: str) -> Iterator[str]:
        at = self._schema["$defs"][f"stream.{source}.{sink}"]["properties"]
        yield "        # --- keys of any stream"
        yield from self._keys(StreamKeys, at, "        ")
        for side, registry, type_ in (("source", self._sources, source), ("sink", self._sinks, sink)):
            model = registry.load(type_).StreamOptions
            if keys(model):
                yield f"        # --- keys of the {side}, {type_}"
                yield from self._keys(model, at, "        ")

    def _keys(self, model: type[BaseModel], at: Schema, indent: str, *, off: bool = False) -> Iterator[str]:
        for key in keys(model):
            if key.name != "type" or at["type"]:  # a source's or sink's own type has been written
                yield from self._key(key, at[key.name], indent, off=off)

    # ------------------------------------------------------------ one key

    def _key(self, key: Key, at: Schema, indent: str, *, off: bool = False) -> Iterator[str]:
        """A key with its comment; `off`: the mapping that it is in is left out."""
        yield from self._comment(key, at, indent)
        if key.model is None:
            value = key.default if key.default is not None else example(key, at)
            yield f"{indent}{'#' * (off or _off(key))}{key.name}: {spelt(value)}"
            return
        # A mapping without a key that is switched on would be nothing.
        off = off or key.field.default is None or all(_off(inner) for inner in keys(key.model))
        yield f"{indent}{'#' * off}{key.name}:"
        yield from self._keys(key.model, self._mapping(at), f"{indent}  ", off=off)

    def _mapping(self, at: Schema) -> Schema:
        refs = [part["$ref"] for part in at.get("anyOf", [at]) if "$ref" in part]
        name = refs[0].removeprefix("#/$defs/")
        properties: Schema = self._schema["$defs"][name]["properties"]
        return properties

    def _comment(self, key: Key, at: Schema, indent: str) -> Iterator[str]:
        facts = [] if key.model or key.name in _WHOLE else [kind(at)]
        if key.required:
            facts.append("required")
        elif key.model is None or key.field.default is None:
            said = key.default_in_words or (spelt(key.default) if key.default is not None else "none")
            facts.append(f"default: {said}")
        lines = [f"# {line}" for line in _wrapped(key.meaning, indent)]
        if facts:
            note = f"({'; '.join(facts)})"
            if lines and len(lines[-1]) + len(note) < WIDTH - len(indent):
                lines[-1] += f" {note}"
            else:
                lines += [f"# {line}" for line in _wrapped(note, indent)]
        yield from (f"{indent}{line}" for line in lines)


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH - len(indent), break_on_hyphens=False)


def _off(key: Key) -> bool:
    """Whether a key has no value unless one gives it one."""
    return key.model is None and not key.required and key.default is None


def kind(at: Schema) -> str:
    """What a value may be, in words."""
    said: list[str] = []
    for part in at.get("anyOf", [at]):
        if "enum" in part:
            said.append(" | ".join(choice if choice == "null" else spelt(choice) for choice in part["enum"]))
        elif part.get("type") == "array":
            said.append("a list")
        elif part.get("type") == "integer" and any("pattern" in other for other in at.get("anyOf", ())):
            continue  # of bytes or of seconds; who writes one knows
        elif "pattern" in part:
            said.append("a size such as 64MiB" if "[iI]" in part["pattern"] else "a time such as 7d or 1h30m")
        elif part.get("type") in _WORDS:
            said.append(_WORDS[part["type"]])
    return " or ".join(dict.fromkeys(said))


def example(key: Key, at: Schema) -> Any:
    """A value that a key may have: the model's example, or the simplest of its kind."""
    if key.field.examples:
        return key.field.examples[0]
    for part in at.get("anyOf", [at]):
        if "enum" in part:
            return part["enum"][0]
        if part.get("type") in ("integer", "number"):
            return part.get("minimum", 1)
        if part.get("type") == "boolean":
            return True
        if part.get("type") == "array":
            return []
        if part.get("type") == "object":
            return {}
    return "text"


def spelt(value: Any) -> str:
    """A value in YAML, on one line."""
    match value:
        case str() if _PLAIN.fullmatch(value) and value not in ("true", "false", "null"):
            return value
        case str() if re.fullmatch(r"[1-9][0-9]*[A-Za-z]+", value):
            return value
        case list():
            return f"[{', '.join(map(spelt, value))}]"
        case dict():
            return "{" + ", ".join(f"{spelt(name)}: {spelt(inner)}" for name, inner in value.items()) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)
