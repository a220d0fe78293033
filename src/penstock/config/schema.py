"""Generates the JSON Schema of a pipeline file from the models, for editors.

The keys of a source or sink depend on its `type`, and the keys of a stream on both types: these are if/then rules.
Every value may be a variable instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from penstock.config.keys import Key, keys
from penstock.config.load import Registry
from penstock.config.models import FileKeys, PipelineKeys, StreamKeys

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"$ref": "#/$defs/variable"}
#: valid names of pipelines and streams
_NAME = {"pattern": r"^(?!\s*$)(?!\.{1,2}$)[^/\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"}
#: keywords of a single value that are copied; Pydantic's titles only repeat names
_VALUE_KEYWORDS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "pattern"),
)
#: bounds: Pydantic's names and those of JSON Schema
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def schema(sources: Registry, sinks: Registry) -> Schema:
    """The schema of a file with these sources and sinks."""
    definitions: Schema = {
        "variable": {
            "type": "string",
            "pattern": r"\$\{",
            "description": "${NAME} from the environment, ${file:PATH} from a file; both may have :-default",
        }
    }
    streams: dict[str, dict[str, Schema]] = {}
    for side, registry in (("source", sources), ("sink", sinks)):
        streams[side] = {}
        for type_ in registry.types():
            module = registry.load(type_)
            whole = _mapping(module.Options, f"{side}.{type_}", definitions)
            whole["properties"] = {"type": {}} | whole["properties"]
            definitions[f"{side}.{type_}"] = whole
            streams[side][type_] = _mapping(module.StreamOptions, f"{side}.{type_}.stream", definitions)["properties"]
    own = _mapping(StreamKeys, "stream", definitions)["properties"]
    pipeline = _mapping(PipelineKeys, "pipeline", definitions)
    pipeline["properties"] |= {
        side: _by_type(side, list(streams[side]), pipeline["properties"][side]) for side in streams
    }
    about = {"description": pipeline["properties"]["streams"]["description"], "type": "object"}
    pipeline["properties"]["streams"] = about | {"minProperties": 1, "propertyNames": _NAME}
    pipeline["allOf"] = [
        _streams(source, sink, definitions, own | streams["source"][source] | _both(streams, source, sink))
        for source in streams["source"]
        for sink in streams["sink"]
    ]
    definitions["pipeline"] = pipeline
    file = _mapping(FileKeys, "file", definitions)
    file["properties"]["pipelines"] |= {
        "minProperties": 1,
        "propertyNames": _NAME,
        "additionalProperties": {"$ref": "#/$defs/pipeline"},
    }
    head = {"$schema": DRAFT, "title": "penstock pipeline file"}
    return head | file | {"$defs": dict(sorted(definitions.items()))}


def _by_type(side: str, types: list[str], about: Schema) -> Schema:
    """A source or sink, whose type determines its keys."""
    return {
        "type": "object",
        "description": about["description"],
        "required": ["type"],
        "properties": {"type": {"description": f"the type of the {side}", "anyOf": [{"enum": types}, _VARIABLE]}},
        "allOf": [{"if": _is(type_), "then": {"$ref": f"#/$defs/{side}.{type_}"}} for type_ in types],
    }


def _streams(source: str, sink: str, definitions: Schema, properties: Schema) -> Schema:
    name = f"stream.{source}.{sink}"
    definitions[name] = {
        "type": ["object", "null"],
        "description": f"a stream from {source} into {sink}",
        "additionalProperties": False,
        "properties": properties,
    }
    return {
        "if": {"required": ["source", "sink"], "properties": {"source": _is(source), "sink": _is(sink)}},
        "then": {"properties": {"streams": {"additionalProperties": {"$ref": f"#/$defs/{name}"}}}},
    }


def _both(streams: dict[str, dict[str, Schema]], source: str, sink: str) -> Schema:
    """The sink's keys; a key that both sides have must be valid for both."""
    ours = streams["source"][source]
    return {
        name: {"allOf": [ours[name], schema]} if name in ours else schema
        for name, schema in streams["sink"][sink].items()
    }


def _is(type_: str) -> Schema:
    return {"required": ["type"], "properties": {"type": {"const": type_}}}


# ---------------------------------------------------------------- one model


def _mapping(model: type[BaseModel], prefix: str, definitions: Schema) -> Schema:
    """A model's schema; the models it refers to are added to the definitions, under names with the prefix."""
    raw = model.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
    inside = dict(_inside(model))
    for name, inner in raw.get("$defs", {}).items():
        definitions[f"{prefix}.{name}"] = _keyed(inner, inside[name])
    return _keyed(raw, model)


def _inside(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for key in keys(model):
        if key.model is not None:
            yield key.model.__name__, key.model
            yield from _inside(key.model)


def _keyed(raw: Schema, model: type[BaseModel]) -> Schema:
    known = {key.name: key for key in keys(model)}
    result: Schema = {"type": "object"}
    if raw.get("description"):
        result["description"] = " ".join(raw["description"].split())
    if raw.get("required"):
        result["required"] = raw["required"]
    result["additionalProperties"] = False
    result["properties"] = {name: _key(inner, known[name]) for name, inner in raw["properties"].items()}
    return result


def _key(raw: Schema, key: Key) -> Schema:
    about: Schema = {"description": key.field.description} if key.field.description else {}
    if key.default is not None:
        about["default"] = key.default
    if raw.get("examples"):
        about["examples"] = raw["examples"]
    # Pydantic drops bounds, or keeps its own names for them, where a string may stand for the number.
    known = ((_BOUNDS[name], getattr(bound, name, None)) for bound in key.field.metadata for name in _BOUNDS)
    return about | _value(raw, {name: bound for name, bound in known if isinstance(bound, int | float)})


def _value(raw: Schema, bounds: Schema) -> Schema:
    parts = list(_parts(raw, bounds))
    scalar = any(part.get("type") not in ("object", "array", "null") and "$ref" not in part for part in parts)
    if scalar and {"type": "string"} not in parts:
        parts.append(_VARIABLE)
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _parts(raw: Schema, bounds: Schema) -> Iterator[Schema]:
    """The alternatives for a value."""
    bounds = bounds | {_BOUNDS[name]: raw[name] for name in _BOUNDS if isinstance(raw.get(name), int | float)}
    if "anyOf" in raw:
        for part in raw["anyOf"]:
            yield from _parts(part, bounds)
    elif "$ref" in raw:
        yield {"$ref": raw["$ref"]}
    elif raw.get("type") == "object":
        inner = raw.get("additionalProperties")
        yield {"type": "object"} | (
            {"additionalProperties": _value(inner, {})} if isinstance(inner, dict) and inner else {}
        )
    elif raw.get("type") == "array":
        yield {name: raw[name] for name in ("type", "minItems") if name in raw} | {"items": _value(raw["items"], {})}
    else:
        own = {name: raw[name] for name in _VALUE_KEYWORDS if name in raw}
        yield own | (bounds if raw.get("type") in ("integer", "number") else {})
        if "null" in raw.get("enum", ()):
            yield {"type": "null"}  # what the word is in YAML
