"""What is read of a list: what a replay reads by, and how a content carries it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.core.content import Column, Content
from penstock.core.names import did_you_mean
from penstock.core.types import Plain, parse_type
from penstock.errors import StreamRefused, refuse_all
from penstock.sources.rest.options import PARENT_ID, RESERVED, Options, StreamOptions, read_time

#: the column that says which of two versions of an object is newer
VERSION = "_changed_at"
#: read by ranges of time; onward from a cursor; or whole in every run
BY_TIME, BY_CURSOR, WHOLE = "time", "cursor", "whole"


@dataclass(frozen=True, slots=True)
class ChangeFields:
    """The fields of an object that say when it was changed, and that it is deleted."""

    #: path; None: the page's time counts
    updated: str | None = None
    #: path; None: there is none
    deleted: str | None = None
    #: path of the object's time, which counts where `updated` is null
    time: str | None = None


@dataclass(frozen=True, slots=True)
class ListContent:
    """A stream as it would be read now."""

    #: server and path of the API, without its scheme
    api: str
    #: path of the list
    path: str
    params: dict[str, str]
    columns: tuple[Column, ...]
    #: by column, the path of its field
    paths: dict[str, str]
    #: the column with the whole object; None: there is none
    json_column: str | None
    #: path of the field that identifies an object, and its column
    id: str
    id_column: str
    #: path of the field with an object's time; None: it is not read by time
    time: str | None
    unit: str
    order: str
    #: how it is read: BY_TIME, BY_CURSOR or WHOLE
    mode: str
    #: stream whose objects this list is read for, and the column with their id; None: it has no parent
    parent: str | None = None
    parent_column: str | None = None
    #: rows are versions of objects, and may be deletes; None: each object is delivered once
    changes: ChangeFields | None = None

    def content(self) -> Content:
        """The same as the engine, shaping and sinks see it."""
        return Content(
            columns=self.columns,
            changes=self.changes is not None,
            key=self.key,
            identity={"api": self.api, "path": self.path, "params": self.params},
            private={
                "mode": self.mode,
                "id": self.id,
                "time": self.time,
                "unit": self.unit,
                "order": self.order,
                "paths": self.paths,
                "json": self.json_column,
            }
            | ({"parent": {"stream": self.parent, "column": self.parent_column}} if self.parent else {})
            | ({"changes": asdict(self.changes)} if self.changes else {}),
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify an object: ids of children are unique within their parent."""
        return (self.parent_column, self.id_column) if self.parent_column else (self.id_column,)

    @classmethod
    def read(cls, content: Content) -> ListContent:
        """From a content; ValueError if it is not one of ours."""
        identity: Any = content.identity
        private: Any = content.private
        try:
            return cls(
                api=identity["api"],
                path=identity["path"],
                params=dict(identity["params"]),
                columns=content.columns,
                paths=dict(private["paths"]),
                json_column=private["json"],
                id=private["id"],
                id_column=content.key[-1],
                time=private["time"],
                unit=private["unit"],
                order=private["order"],
                mode=private["mode"],
                parent=private["parent"]["stream"] if "parent" in private else None,
                parent_column=private["parent"]["column"] if "parent" in private else None,
                changes=ChangeFields(**private["changes"]) if "changes" in private else None,
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not the content of a rest stream: {error!r}") from error


def content_of(stream: str, options: StreamOptions, source: Options) -> ListContent:
    """What the options say; StreamRefused with every problem if they contradict each other."""
    paths = {name: options.fields.get(name, name) for name in options.columns}
    types = dict(options.columns)
    id_column = _column_of(options.id, paths) or _add(options.id, "string", paths, types)
    if options.time is not None and _column_of(options.time.field, paths) is None:
        _add(options.time.field, "timestamptz", paths, types)
    refuse_all(
        StreamRefused(what, next_step=step, stream=stream)
        for what, step in (
            *_find_contradictions(options),
            *_find_coarse_bounds(options, source),
            *_find_shared_names(options, paths),
        )
    )
    columns = [Column(name, parse_type(types[name])) for name in paths]
    if options.parent:
        columns.insert(0, Column(options.parent_column, Plain.STRING))
    if options.changes is not None:
        columns.append(Column(VERSION, Plain.TIMESTAMPTZ))
    if options.json_column:
        columns.append(Column(options.json_column, Plain.JSON))
    url = urlsplit(source.base_url)
    return ListContent(
        api=f"{url.netloc}{url.path}",
        path=(options.path or stream).strip("/"),
        params=dict(options.params),
        columns=tuple(columns),
        paths=paths,
        json_column=options.json_column,
        id=options.id,
        id_column=id_column,
        time=options.time.field if options.time else None,
        unit=options.time.unit_name if options.time else "seconds",
        order=options.order,
        mode=BY_TIME if options.time else BY_CURSOR if options.incremental else WHOLE,
        changes=_change_fields(options),
        parent=options.parent,
        parent_column=options.parent_column if options.parent else None,
    )


#: what is wrong, and the next step
_Problem = tuple[str, str]


def _find_contradictions(options: StreamOptions) -> Iterator[_Problem]:
    if options.incremental and options.time is not None:
        yield "`incremental` and `time` are two ways to read only new objects", "keep one of them"
    if options.incremental and options.paging.by in ("page", "offset", "none"):
        how = "there is one page only" if options.paging.by == "none" else f"{options.paging.by} counts from the start"
        what = f"`incremental` needs a cursor that stays valid; {how}"
        yield what, "use `last_id`, `token`, `link` or `next_url` under `paging`, if the API has one"
    if options.time_range is not None and options.time is None:
        what = "`time_range` needs `time`: without it, the whole list is read"
        yield what, "set `time`, if the API filters by it; or remove `time_range`"
    if options.changes is not None and options.time is None:
        what = "`changes` needs `time`: a list without it is read whole in every run, or only where it grows"
        yield what, "set `time`, or leave `changes` out"
    for name in options.fields:
        if name not in options.columns:
            yield f"`fields` names {name}, which is no column", "declare it under `columns`"


def _find_coarse_bounds(options: StreamOptions, source: Options) -> Iterator[_Problem]:
    """Bounds that so coarse a filter cannot keep."""
    granularity = options.time.granularity if options.time else None
    window = options.time_range or source.time_range
    for name, bound in (("from", window.from_), ("to", window.to)) if window and granularity else ():
        if bound is not None and read_time(bound).timestamp() % (granularity or 1):
            what = f"`{name}` of `time_range`, {bound}, is no multiple of the filter's granularity, {granularity} s"
            yield what, "set it to the beginning of a minute, hour or day (UTC) of that granularity"


def _find_shared_names(options: StreamOptions, paths: Mapping[str, str]) -> Iterator[_Problem]:
    for name in (*paths, *([options.json_column] if options.json_column else [])):
        if name in RESERVED or (options.changes is not None and name == VERSION):
            yield f"column {name} is one of penstock's own", "give it another name under `columns`"
    if options.json_column in paths:
        what = f"column {options.json_column} is declared, and is also the column for the whole object"
        yield what, "set `json_column` to another name, or to null"
    if options.parent and options.parent_column in (*paths, options.json_column, *RESERVED):
        what = f"column {options.parent_column}, for the id of the parent, is also another column"
        yield what, "set `parent_column` to another name"


def check_parent(stream: str, streams: Mapping[str, StreamOptions]) -> None:
    """StreamRefused if a stream's parent is no list that can be its parent, or the stream cannot have one."""
    problems = _find_parent_problems(stream, streams)
    refuse_all(StreamRefused(what, next_step=step, stream=stream) for what, step in problems)


def _find_parent_problems(stream: str, streams: Mapping[str, StreamOptions]) -> Iterator[_Problem]:
    options = streams[stream]
    parent = options.parent
    if parent is None:
        if PARENT_ID in (options.path or ""):
            yield "`path` has {id}, and no stream is named whose ids to put in", "name it with `parent`"
        return
    if not any(PARENT_ID in value for value in (options.path or "", *options.params.values())):
        what = f"`parent` is {parent}, and neither `path` nor `params` has {{id}}, which its ids are put in for"
        yield what, f"write the path as `{parent}/{{id}}/{stream}`, as the API has it"
    if options.time is not None or options.incremental:
        how = "time" if options.time is not None else "incremental"
        yield f"a stream with a `parent` is read whole in every run, and has `{how}`", f"remove `{how}`"
    if parent == stream:
        yield "`parent` is the stream itself", "name the stream that lists the parents"
    elif parent not in streams:
        what = f"`parent` is {parent!r}, which is no stream of the pipeline{did_you_mean(parent, streams)}"
        yield what, "name a stream of the pipeline"
    elif streams[parent].parent is not None:
        what = f"the parent {parent} has a parent itself; only one level is read"
        yield what, f"name a stream without `parent`, or remove {stream}"


def _change_fields(options: StreamOptions) -> ChangeFields | None:
    changes, time = options.changes, options.time
    return ChangeFields(changes.updated, changes.deleted, time.field) if changes and time else None


def _column_of(path: str, paths: dict[str, str]) -> str | None:
    return next((name for name, at in paths.items() if at == path), None)


def _add(path: str, type_: str, paths: dict[str, str], types: dict[str, str]) -> str:
    """Declare a column for a field that has none. Its name is the field's, or the whole path if that is taken."""
    name = path.rpartition(".")[2]
    name = path if name in paths else name
    known = dict(paths)
    paths.clear()
    paths.update({name: path} | known)
    types[name] = type_
    return name
