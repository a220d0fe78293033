"""Loads a pipeline file into frozen models, or reports every mistake in it."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.config import syntax, validation_messages
from penstock.config.document import Document, build, resolve
from penstock.config.mistakes import SYNONYMS, UNKNOWN, Mistake, Path, config_error
from penstock.config.models import File, FileKeys, Pipeline, PipelineKeys, StreamKeys
from penstock.config.overrides import override
from penstock.config.variables import Variables
from penstock.core.history import HistoryLimits
from penstock.core.names import nearest, suggest
from penstock.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


class Registry(Protocol):
    """The interface of `penstock.sources` and `penstock.sinks`, which this package does not import."""

    def types(self) -> Sequence[str]:
        """Every known type, sorted."""
        ...

    def load(self, type_: str, /) -> Any:
        """The module of a type, with `Options` and `StreamOptions`.

        It may have `check_options(stream, options)`, which raises InputError for incompatible keys. A sink may have
        `SLICE_BYTES`, its default slice size.
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

    `sets` are overrides, `KEY=VALUE`, merged into the file before it is validated.
    """
    file = str(path)
    root = syntax.parse(syntax.read(FilePath(path)), file)
    if root is None:
        raise config_error(file, [Mistake(1, (), "the file is empty; it must contain at least 'pipelines:'")])
    folder = os.path.dirname(os.path.abspath(file))
    variables = Variables(environment, folder)
    document = build(root, variables)
    override(document, sets, variables)
    loaded = _Validator(document, sources, sinks).file(file, folder)
    if loaded is None or document.mistakes:
        raise config_error(file, document.mistakes)
    return loaded


@dataclass(frozen=True, slots=True)
class _Side:
    """A pipeline's source or sink."""

    type: str
    #: the module from the registry
    module: Any
    #: None if they contain mistakes
    options: BaseModel | None


@dataclass(frozen=True, slots=True)
class _Streams:
    """The keys of a pipeline's streams by owner: penstock, source and sink."""

    own: dict[str, StreamKeys] = field(default_factory=dict)
    source: dict[str, BaseModel] = field(default_factory=dict)
    sink: dict[str, BaseModel] = field(default_factory=dict)


class _Validator:
    """Validates a document from the top and collects its mistakes."""

    def __init__(self, document: Document, sources: Registry, sinks: Registry) -> None:
        self._document = document
        self._sources = sources
        self._sinks = sinks

    def file(self, file: str, folder: str) -> File | None:
        data = self._document.data
        self._check_top_level_pipelines(data)
        keys = self._keys(FileKeys, data, ())
        written = data.get("pipelines") if isinstance(data, dict) else None
        if not isinstance(written, dict):
            return None
        if not written:
            self._report(("pipelines",), "there are no pipelines")
        pipelines = [self._pipeline(name, body) for name, body in written.items()]
        whole = {pipeline.name: pipeline for pipeline in pipelines if pipeline is not None}
        for name in keys.receiver.streams if keys and keys.receiver else ():
            self._name(("receiver", "streams", name), "stream")
        if keys is None or len(whole) < len(pipelines):
            return None
        history = HistoryLimits(**keys.history.model_dump())
        return File(
            file,
            folder,
            keys.store,
            history,
            keys.spark,
            whole,
            keys.on_failure,
            keys.on_success,
            keys.receiver,
        )

    def _check_top_level_pipelines(self, data: Any) -> None:
        """Suppress the error about a missing `pipelines` if pipelines are written at the top level."""
        if not isinstance(data, dict) or data.get("pipelines") is not None:
            return
        from penstock.config.misplaced_keys import looks_like_a_pipeline

        if any(key not in names_of(FileKeys) and looks_like_a_pipeline(value) for key, value in data.items()):
            self._document.broken.add(("pipelines",))

    def _pipeline(self, name: str, body: Any) -> Pipeline | None:
        path: Path = ("pipelines", name)
        if name in names_of(PipelineKeys) and not (isinstance(body, dict) and {"source", "sink"} <= body.keys()):
            self._report(
                path, "is a key of a pipeline, not a pipeline's name; write it below a pipeline's name, indented"
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
        """The configured slice size, or the smaller of the default and the sink's default."""
        if "slice_bytes" in keys.model_fields_set:
            return keys.slice_bytes
        return min(keys.slice_bytes, getattr(self._sinks.load(sink), "SLICE_BYTES", keys.slice_bytes))

    def _side(self, side: str, registry: Registry, body: dict[str, Any], path: Path) -> _Side | None:
        path = (*path, side)
        options = body.get(side)
        if not isinstance(options, dict):
            return None  # the validation of the pipeline's keys has reported it
        type_ = options.get("type")
        place = (*path, "type")
        if "type" not in options:
            near = nearest("type", options)
            if near is not None and nearest(near, ["type"]):
                self._report((*path, near), f"{UNKNOWN}; did you mean 'type'?")
            else:
                self._report(place, f"{validation_messages.MISSING}; known types: {', '.join(registry.types())}")
            return None
        if not isinstance(type_, str):
            self._report(place, validation_messages.expected("a string", type_, self._document, place))
            return None
        try:
            module = registry.load(type_)
        except KeyError:
            known = registry.types()
            near = nearest(type_, known, synonyms=SYNONYMS)
            meant = f"; did you mean '{near}'?" if near else "."
            shown = validation_messages.shown(type_, self._document, place)
            self._report(place, f"unknown {side} type {shown}{meant} Known: {', '.join(known)}")
            return None
        own = options if "type" in module.Options.model_fields else {k: v for k, v in options.items() if k != "type"}
        return _Side(type_, module, self._keys(module.Options, own, path, more=["type"]))

    def _streams(self, body: dict[str, Any], source: _Side | None, sink: _Side | None, path: Path) -> _Streams | None:
        """The streams' options by owner."""
        path = (*path, "streams")
        if "streams" not in body:
            return _Streams()
        streams = body["streams"]
        if not streams and (streams is None or isinstance(streams, dict)):
            self._report(path, "there are no streams; omit 'streams' to sync every stream that discovery finds")
        if not isinstance(streams, dict):
            return None
        for name in streams:
            self._name((*path, name), "stream")
        if source is None or sink is None:
            return None  # the valid options of a stream are unknown
        split = _Streams()
        for name, options in streams.items():
            if options is None or isinstance(options, dict):  # otherwise it is already reported
                self._stream(split, options or {}, source.module, sink.module, (*path, name))
        whole = all(len(part) == len(streams) for part in (split.own, split.source, split.sink))
        return split if whole else None

    def _stream(self, split: _Streams, options: dict[str, Any], source: Any, sink: Any, path: Path) -> None:
        """Validate one stream's options and add the valid ones to `split`."""
        models = (StreamKeys, source.StreamOptions, sink.StreamOptions)
        known = {name for model in models for name in names_of(model)}
        self._unknown(options, known, path)
        own, of_source, of_sink = (
            self._keys(model, {k: v for k, v in options.items() if k in names_of(model)}, path) for model in models
        )
        if all(key in known for key in options):
            self._check_options(((source, of_source), (sink, of_sink)), path)
        name = str(path[-1])
        if own is not None:
            split.own[name] = own
        if of_source is not None:
            split.source[name] = of_source
        if of_sink is not None:
            split.sink[name] = of_sink

    def _check_options(self, sides: Iterable[tuple[Any, BaseModel | None]], path: Path) -> None:
        """Let source and sink check the combination of a stream's options."""
        for module, options in sides:
            check = getattr(module, "check_options", None)
            if check is None or options is None:
                continue
            try:
                check(str(path[-1]), options)
            except InputError as error:
                text = f"{error.what}; {error.next_step}"
                self._report(path, validation_messages.remove_secrets(text, self._document, path))

    # ------------------------------------------------------------ one mapping

    def _keys(self, model: type[Model], data: Any, path: Path, *, more: Collection[str] = ()) -> Model | None:
        """Validate one mapping; `more` are keys that are valid here and read elsewhere."""
        if not isinstance(data, dict):
            self._report(path, validation_messages.expected("a mapping", data, self._document, path))
            return None
        known = names_of(model)
        unknown = self._unknown(data, {*known, *more}, path)
        mine = {key: value for key, value in data.items() if key in known}
        try:
            result: Model | None = model.model_validate_json(json.dumps(mine), strict=True)
        except ValidationError as error:
            result = self._validate_scalars(model, mine, path, error)
        return None if unknown else result

    def _validate_scalars(
        self, model: type[Model], data: dict[str, Any], path: Path, error: ValidationError
    ) -> Model | None:
        """Validate again, with the values of variables read as numbers or booleans where the field expects them.

        An unquoted `null` is read as the choice `null` where the field has one.
        """
        for place, wrong in validation_messages.locate_errors(error.errors(include_url=False), data):
            if self._document.variables((*path, *place)):
                data = _replace_at(data, place, _as_scalar)
            elif validation_messages.offers_null(wrong) and self._document.place((*path, *place)).null:
                data = _replace_at(data, place, lambda _: "null")
        try:
            return model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as second:
            errors = second.errors(include_url=False)
        mistakes = validation_messages.mistakes_of(errors, model, data, path, self._document)
        for place, text in mistakes:
            if text != validation_messages.MISSING:
                self._report(place, text)
        for place, text in mistakes:
            if text == validation_messages.MISSING and not self._is_misspelled(place):
                self._report(place, text + self._example(model, place))
        return None

    def _example(self, model: type[BaseModel], missing: Path) -> str:
        """An example for a missing required key."""
        match missing:
            case ("pipelines",):
                return "; write each pipeline below it, under its name"
            case ("pipelines", _, "source" | "sink" as side):
                registry = self._sources if side == "source" else self._sinks
                return f"; known types: {', '.join(registry.types())}"
        return validation_messages.example(model, missing)

    def _is_misspelled(self, missing: Path) -> bool:
        """Whether a missing key is present under a wrong name, which counts as one mistake."""
        return any(
            mistake.path[:-1] == missing[:-1]
            and mistake.text.startswith(UNKNOWN)
            and nearest(str(mistake.path[-1]), [str(missing[-1])], synonyms=SYNONYMS)
            for mistake in self._document.mistakes
            if mistake.path
        )

    def _unknown(self, data: dict[str, Any], known: Collection[str], path: Path) -> list[str]:
        unknown = [key for key in data if key not in known]
        for key in unknown:
            name, colon, value = key.partition(":")
            if colon and value and name in known:
                # The rest was meant as a value, which may be secret, so it is not shown.
                at = self._document.place((*path, key))
                self._document.mistake((*path, f"{name}:…"), f"{UNKNOWN}; a space is missing after '{name}:'", at=at)
            else:
                self._report((*path, key), f"{UNKNOWN}; {self._suggest(key, data[key], known, path)}")
        return unknown

    def _suggest(self, key: str, value: Any, known: Collection[str], path: Path) -> str:
        from penstock.config.misplaced_keys import find_owner, looks_like_a_pipeline

        if not path and looks_like_a_pipeline(value):
            return "if it is a pipeline, indent it below 'pipelines:'"
        if where := find_owner(key, path, self._document.data, self._sources, self._sinks):
            return f"it belongs to {where}"
        return suggest(key, known, "valid keys", synonyms=SYNONYMS)

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
        self._report(path, f"a {what}'s name {problem}")

    def _report(self, path: Path, text: str) -> None:
        if path not in self._document.broken:
            self._document.mistake(path, text)


def names_of(model: type[BaseModel]) -> set[str]:
    """A model's keys as they are written in the file."""
    return {field.alias or name for name, field in model.model_fields.items()}


def _replace_at(data: Any, place: Path, read: Callable[[Any], Any]) -> Any:
    """Return the data with the value at a path converted by `read`."""
    if not place:
        return read(data)
    step, rest = place[0], place[1:]
    if isinstance(data, dict):
        return data | {step: _replace_at(data[str(step)], rest, read)} if step in data else data
    return [_replace_at(item, rest, read) if index == step else item for index, item in enumerate(data)]


def _as_scalar(value: Any) -> Any:
    return resolve(value) if isinstance(value, str) else value
