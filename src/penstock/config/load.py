"""A pipeline file, from its path to frozen models, or every mistake in it at once."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.config import syntax, words
from penstock.config.document import Document, build, resolve
from penstock.config.mistakes import UNKNOWN, Mistake, Path, config_error, nearest, suggest
from penstock.config.models import File, FileKeys, Pipeline, PipelineKeys, StreamKeys
from penstock.config.overrides import override
from penstock.config.variables import Variables
from penstock.core.history import HistoryLimits
from penstock.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


class Registry(Protocol):
    """What `penstock.sources` and `penstock.sinks` offer. Given as an argument: config knows neither."""

    @property
    def TYPES(self) -> Collection[str]: ...

    def load(self, type_: str, /) -> Any:
        """The module of a type, with `Options` and `StreamOptions`.

        It may offer `check_options(stream, options)`, which raises InputError where keys do not go together. A sink may
        offer `SLICE_BYTES`, how large it would have slices of which the file says nothing.
        """
        ...


def load(
    path: str | FilePath,
    *,
    environment: Mapping[str, str],
    sources: Registry,
    sinks: Registry,
    sets: Sequence[str] = (),
) -> File:
    """Read a pipeline file; ConfigError lists every mistake with its line.

    `sets` are overrides, `KEY=VALUE`, merged onto the file before it is validated.
    """
    file = str(path)
    root = syntax.parse(syntax.read(FilePath(path)), file)
    if root is None:
        raise config_error(file, [Mistake(1, (), "the file is empty; it must at least say 'pipelines:'")])
    folder = os.path.dirname(os.path.abspath(file))
    variables = Variables(environment, folder)
    document = build(root, variables)
    override(document, sets, variables)
    found = _Check(document, sources, sinks).file(file, folder)
    if found is None or document.mistakes:
        raise config_error(file, document.mistakes)
    return found


@dataclass(frozen=True, slots=True)
class _Side:
    """A pipeline's source or sink."""

    type: str
    #: the module that the registry gave
    module: Any
    #: None: there are mistakes in them
    options: BaseModel | None


@dataclass(frozen=True, slots=True)
class _Streams:
    """A pipeline's streams by name, split by whose keys they are."""

    own: dict[str, StreamKeys] = field(default_factory=dict)
    source: dict[str, BaseModel] = field(default_factory=dict)
    sink: dict[str, BaseModel] = field(default_factory=dict)


class _Check:
    """Goes through a document from the top; collects mistakes, and what is right."""

    def __init__(self, document: Document, sources: Registry, sinks: Registry) -> None:
        self._document = document
        self._sources = sources
        self._sinks = sinks

    def file(self, file: str, folder: str) -> File | None:
        data = self._document.data
        self._lost(data)
        keys = self._keys(FileKeys, data, ())
        written = data.get("pipelines") if isinstance(data, dict) else None
        if not isinstance(written, dict):
            return None
        if not written:
            self._complain(("pipelines",), "no pipeline is named")
        pipelines = [self._pipeline(name, body) for name, body in written.items()]
        whole = {pipeline.name: pipeline for pipeline in pipelines if pipeline is not None}
        if keys is None or len(whole) < len(pipelines):
            return None
        history = HistoryLimits(**keys.history.model_dump())
        return File(file, folder, keys.store, history, keys.spark, whole, keys.on_failure, keys.on_success)

    def _lost(self, data: Any) -> None:
        """Pipelines at the top of the file: said once, and not again by an empty `pipelines`."""
        if not isinstance(data, dict) or data.get("pipelines") is not None:
            return
        from penstock.config.elsewhere import looks_like_a_pipeline

        if any(key not in names_of(FileKeys) and looks_like_a_pipeline(value) for key, value in data.items()):
            self._document.broken.add(("pipelines",))

    def _pipeline(self, name: str, body: Any) -> Pipeline | None:
        path: Path = ("pipelines", name)
        if name in names_of(PipelineKeys) and not (isinstance(body, dict) and {"source", "sink"} <= body.keys()):
            self._complain(
                path, "is a key of a pipeline, not the name of one; write it below a pipeline's name, indented"
            )
            return None
        self._name(path, "pipeline")
        keys = self._keys(PipelineKeys, body, path)
        if not isinstance(body, dict):
            return None
        source = self._side("source", self._sources, body, path)
        sink = self._side("sink", self._sinks, body, path)
        streams = self._streams(body, source, sink, path)
        if keys is None or source is None or sink is None or streams is None:
            return None
        if source.options is None or sink.options is None:
            return None
        return Pipeline(
            name=name,
            source_type=source.type,
            source=source.options,
            sink_type=sink.type,
            sink=sink.options,
            streams=streams.own,
            source_streams=streams.source,
            sink_streams=streams.sink,
            slice_bytes=self._slice_bytes(keys, sink.type),
            lease_seconds=keys.lease_seconds,
            spools=keys.spools,
            on_failure=keys.on_failure,
            on_success=keys.on_success,
        )

    def _slice_bytes(self, keys: PipelineKeys, sink: str) -> int:
        """What is said; else what the sink would rather have, if that is less."""
        if "slice_bytes" in keys.model_fields_set:
            return keys.slice_bytes
        return min(keys.slice_bytes, getattr(self._sinks.load(sink), "SLICE_BYTES", keys.slice_bytes))

    def _side(self, side: str, registry: Registry, body: dict[str, Any], path: Path) -> _Side | None:
        path = (*path, side)
        options = body.get(side)
        if not isinstance(options, dict):
            return None  # said already, by the pipeline's own keys
        type_, known = options.get("type"), sorted(registry.TYPES)
        place = (*path, "type")
        if "type" not in options:
            near = nearest("type", options)
            if near is not None and nearest(near, ["type"]):
                self._complain((*path, near), f"{UNKNOWN}; did you mean 'type'?")
            else:
                self._complain(place, f"{words.MISSING}; known types: {', '.join(known)}")
            return None
        if not isinstance(type_, str):
            self._complain(place, words.expected("text", type_, self._document, place))
            return None
        try:
            module = registry.load(type_)
        except KeyError:
            near = nearest(type_, known)
            meant = f"; did you mean '{near}'?" if near else "."
            shown = words.shown(type_, self._document, place)
            self._complain(place, f"unknown {side} type {shown}{meant} Known: {', '.join(known)}")
            return None
        own = options if "type" in module.Options.model_fields else {k: v for k, v in options.items() if k != "type"}
        return _Side(type_, module, self._keys(module.Options, own, path, more=["type"]))

    def _streams(self, body: dict[str, Any], source: _Side | None, sink: _Side | None, path: Path) -> _Streams | None:
        """The streams' options, split by whose they are."""
        path = (*path, "streams")
        if "streams" not in body:
            return _Streams()
        streams = body["streams"]
        if not streams and (streams is None or isinstance(streams, dict)):
            self._complain(path, "no stream is named; leave 'streams' out to sync all that the source finds")
        if not isinstance(streams, dict):
            return None
        for name in streams:
            self._name((*path, name), "stream")
        if source is None or sink is None:
            return None  # which options a stream has is not known
        split = _Streams()
        for name, options in streams.items():
            if options is None or isinstance(options, dict):  # else it is said already, by the pipeline's own keys
                self._stream(split, options or {}, source.module, sink.module, (*path, name))
        whole = all(len(part) == len(streams) for part in (split.own, split.source, split.sink))
        return split if whole else None

    def _stream(self, split: _Streams, options: dict[str, Any], source: Any, sink: Any, path: Path) -> None:
        """One stream's options, put where they belong as far as they are right."""
        models = (StreamKeys, source.StreamOptions, sink.StreamOptions)
        known = {name for model in models for name in names_of(model)}
        self._unknown(options, known, path)
        own, of_source, of_sink = (
            self._keys(model, {k: v for k, v in options.items() if k in names_of(model)}, path) for model in models
        )
        if all(key in known for key in options):
            self._agree(((source, of_source), (sink, of_sink)), path)
        name = str(path[-1])
        if own is not None:
            split.own[name] = own
        if of_source is not None:
            split.source[name] = of_source
        if of_sink is not None:
            split.sink[name] = of_sink

    def _agree(self, sides: Iterable[tuple[Any, BaseModel | None]], path: Path) -> None:
        """What a source or sink has to say of a stream's options together, if it says anything."""
        for module, options in sides:
            check = getattr(module, "check_options", None)
            if check is None or options is None:
                continue
            try:
                check(str(path[-1]), options)
            except InputError as error:
                text = f"{error.what}; {error.next_step}"
                self._complain(path, words.without_secrets(text, self._document, path))

    # ------------------------------------------------------------ one mapping

    def _keys(self, model: type[Model], data: Any, path: Path, *, more: Collection[str] = ()) -> Model | None:
        """Validate one mapping. `more`: keys that are valid here and read elsewhere."""
        if not isinstance(data, dict):
            self._complain(path, words.expected("a mapping", data, self._document, path))
            return None
        known = names_of(model)
        unknown = self._unknown(data, {*known, *more}, path)
        mine = {key: value for key, value in data.items() if key in known}
        try:
            result: Model | None = model.model_validate_json(json.dumps(mine), strict=True)
        except ValidationError as error:
            result = self._again(model, mine, path, error)
        return None if unknown else result

    def _again(self, model: type[Model], data: dict[str, Any], path: Path, error: ValidationError) -> Model | None:
        """Once more, with variables read as the numbers or truth values that their fields ask for.

        And with the word `null`, which is nothing in YAML, read as the choice of that name where there is one.
        """
        for place, wrong in words.places_of(error.errors(include_url=False), data):
            if self._document.variables((*path, *place)):
                data = _replaced(data, place, _as_scalar)
            elif words.offers_null(wrong) and self._document.place((*path, *place)).null:
                data = _replaced(data, place, lambda _: "null")
        try:
            return model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as still:
            errors = still.errors(include_url=False)
        found = words.mistakes_of(errors, model, data, path, self._document)
        for place, text in found:
            if text != words.MISSING:
                self._complain(place, text)
        for place, text in found:
            if text == words.MISSING and not self._misspelt(place):
                self._complain(place, text + self._example(model, place))
        return None

    def _example(self, model: type[BaseModel], missing: Path) -> str:
        """What to write for a required key."""
        match missing:
            case ("pipelines",):
                return "; pipelines are written below it, each below its name"
            case ("pipelines", _, "source" | "sink" as side):
                registry = self._sources if side == "source" else self._sinks
                return f"; known types: {', '.join(sorted(registry.TYPES))}"
        return words.example(model, missing)

    def _misspelt(self, missing: Path) -> bool:
        """Whether a required key is there under a wrong name: that is one mistake, not two."""
        return any(
            mistake.path[:-1] == missing[:-1]
            and mistake.text.startswith(UNKNOWN)
            and nearest(str(mistake.path[-1]), [str(missing[-1])])
            for mistake in self._document.mistakes
            if mistake.path
        )

    def _unknown(self, data: dict[str, Any], known: Collection[str], path: Path) -> list[str]:
        unknown = [key for key in data if key not in known]
        for key in unknown:
            name, colon, value = key.partition(":")
            if colon and value and name in known:
                # What follows was meant as a value, so it is not shown.
                at = self._document.place((*path, key))
                self._document.mistake((*path, f"{name}:…"), f"{UNKNOWN}; a space is missing after '{name}:'", at=at)
            else:
                self._complain((*path, key), f"{UNKNOWN}; {self._meant(key, data[key], known, path)}")
        return unknown

    def _meant(self, key: str, value: Any, known: Collection[str], path: Path) -> str:
        from penstock.config.elsewhere import belongs, looks_like_a_pipeline

        if not path and looks_like_a_pipeline(value):
            return "if it is a pipeline, indent it below 'pipelines:'"
        if where := belongs(key, path, self._document.data, self._sources, self._sinks):
            return f"it belongs to {where}"
        return suggest(key, known, "valid keys")

    def _name(self, path: Path, what: str) -> None:
        name = str(path[-1])
        if not name.strip():
            problem = "must not be empty"
        elif name in (".", ".."):
            problem = f"must not be '{name}'"
        elif "/" in name:
            problem = "must not contain '/'"
        elif any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
            problem = "must not contain control characters"
        else:
            return
        self._complain(path, f"a {what}'s name {problem}")

    def _complain(self, path: Path, text: str) -> None:
        if path not in self._document.broken:
            self._document.mistake(path, text)


def names_of(model: type[BaseModel]) -> set[str]:
    """A model's keys as the file spells them."""
    return {field.alias or name for name, field in model.model_fields.items()}


def _replaced(data: Any, place: Path, read: Callable[[Any], Any]) -> Any:
    """The data with what lies at a place read in another way."""
    if not place:
        return read(data)
    step, rest = place[0], place[1:]
    if isinstance(data, dict):
        return data | {step: _replaced(data[str(step)], rest, read)} if step in data else data
    return [_replaced(item, rest, read) if index == step else item for index, item in enumerate(data)]


def _as_scalar(value: Any) -> Any:
    return resolve(value) if isinstance(value, str) else value
