"""What a stream reads: its columns, declared or those of its files; how a content carries it; and what contradicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.content import Column, Columns, Content
from penstock.core.types import Plain, parse_type
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.columnar import Columnar
from penstock.sources.files.conversion import Policy, is_convertible, is_text_type
from penstock.sources.files.csv import Csv
from penstock.sources.files.heads import Format, Head
from penstock.sources.files.ndjson import Ndjson
from penstock.sources.files.options import TEXT, TEXT_TYPES, CsvOptions, StreamOptions
from penstock.sources.files.places import File, Place, shown
from penstock.sources.files.text import Compression


@dataclass(frozen=True, slots=True)
class FilesContent:
    """A stream as it would be read now."""

    #: the folder, as the pipeline file has it
    directory: str
    patterns: tuple[str, ...]
    exclude: tuple[str, ...]
    #: the folder's absolute path: a sink compares it with its own
    root: str
    #: what arrives, with the columns of partitions last
    columns: Columns
    #: names of the columns whose values are in names of folders
    partitions: tuple[str, ...]
    #: whether the columns are declared
    declared: bool
    key: tuple[str, ...]
    format: str
    compression: str
    csv: dict[str, Any]
    bad_values: str

    @property
    def in_files(self) -> Columns:
        """The columns that the files themselves have."""
        return tuple(column for column in self.columns if column.name not in self.partitions)

    @property
    def reading(self) -> Format:
        """How files of it are read."""
        policy: Policy = "null" if self.bad_values == "null" else "fail"
        names = tuple(column.name for column in self.in_files)
        compression = Compression(self.compression)
        match self.format:
            case "parquet" | "orc":
                return Columnar("orc" if self.format == "orc" else "parquet", policy, names if self.declared else ())
            case "csv":
                return Csv(CsvOptions.model_validate(self.csv), compression, policy, names)
        return Ndjson(compression, policy, array=self.format == "json", ignores_others=self.declared)

    def content(self) -> Content:
        """The same as the engine, shaping and sinks see it."""
        return Content(
            columns=self.columns,
            key=self.key,
            identity={
                "directory": self.directory,
                "root": self.root,
                "patterns": list(self.patterns),
                "exclude": list(self.exclude),
            },
            private={
                "partitions": list(self.partitions),
                "declared": self.declared,
                "format": self.format,
                "compression": self.compression,
                "csv": {name: list(value) if isinstance(value, tuple) else value for name, value in self.csv.items()},
                "bad_values": self.bad_values,
            },
        )

    @classmethod
    def read(cls, content: Content) -> FilesContent:
        """From a content; ValueError if it is not one of ours."""
        identity: Any = content.identity
        private: Any = content.private
        try:
            return cls(
                directory=identity["directory"],
                patterns=tuple(identity["patterns"]),
                exclude=tuple(identity["exclude"]),
                root=identity["root"],
                columns=content.columns,
                partitions=tuple(private["partitions"]),
                declared=private["declared"],
                key=content.key,
                format=private["format"],
                compression=private["compression"],
                csv={n: tuple(v) if isinstance(v, list) else v for n, v in private["csv"].items()},
                bad_values=private["bad_values"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the content of a files stream: {error!r}") from error


def content_of(directory: str, root: str, options: StreamOptions, columns: Columns | None) -> FilesContent:
    """What the options say; `columns` are those of the files, where none are declared."""
    declared = tuple(Column(name, parse_type(type_)) for name, type_ in options.columns.items())
    partitions = tuple(Column(name, parse_type(type_)) for name, type_ in options.partitions.items())
    found = tuple(column for column in columns or () if column.name not in options.partitions)
    return FilesContent(
        directory=directory,
        root=root,
        patterns=options.patterns,
        exclude=options.exclude,
        columns=(*(declared or found), *partitions),
        partitions=tuple(options.partitions),
        declared=bool(declared),
        key=options.primary_key,
        format=options.chosen_format or "",
        compression=options.compression,
        csv=options.csv.model_dump() if options.chosen_format == "csv" else {},
        bad_values=options.bad_values,
    )


def find_problems(content: FilesContent, stream: str) -> Iterator[StreamRefused]:
    """Everything that is wrong with the declared columns."""
    for column in content.columns:
        is_text = content.format in TEXT or column.name in content.partitions
        if is_text and not is_text_type(column.type):
            yield StreamRefused(
                f"column {column.name} is declared as {column.type}, which text cannot be converted to",
                next_step=f"use one of: {TEXT_TYPES}",
                safe=UNTOUCHED,
                stream=stream,
            )
    names = [column.name for column in content.columns]
    for name in content.key:
        if name not in names:
            yield StreamRefused(
                f"`primary_key` names {name}, which is no column of the files",
                next_step=f"use some of: {', '.join(names)}",
                safe=UNTOUCHED,
                stream=stream,
            )


def fits(content: FilesContent, head: Head) -> bool:
    """Whether a file has exactly the columns of the content, where none are declared."""
    columns, folders = content.in_files, set(content.partitions)
    if head.columns is not None:
        there = {each.name: each.type for each in head.columns if each.name not in folders}
        return there == {each.name: each.type for each in columns}
    return head.names is None or set(head.names) - folders == {each.name for each in columns}


def require_columns(content: FilesContent, file: File, head: Head, place: Place, stream: str) -> None:
    """StreamRefused if a file lacks a declared column, or has it with a type that cannot become the declared one."""
    there = None if head.columns is None else {each.name: each for each in head.columns}
    names = head.names if there is None else tuple(there)
    if names is None:
        return
    for column in content.in_files:
        what = ""
        if column.name not in names:
            what = f"has no column {column.name!r}: it has {_listed(names)}"
        elif there is not None and not is_convertible(there[column.name].type, column.type):
            what = f"has the column {column.name!r} as {there[column.name].type}, and it is declared as {column.type}"
        if what:
            raise StreamRefused(
                f"{shown(file.path)} in {place.shown} {what}",
                safe=UNTOUCHED,
                next_step="correct `columns`; or leave the file out with `exclude`, and read it by a stream of its own",
                stream=stream,
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def kept_types(found: Columns, before: Columns) -> Columns:
    """Columns that were guessed, with the types that were guessed the first time."""
    known = {column.name: column for column in before}
    return tuple(known.get(column.name, column) for column in found)


def with_missing(found: Columns, before: Columns) -> Columns:
    """The same for files whose rows need not have every field: no column goes away."""
    kept, names = kept_types(found, before), {column.name for column in before}
    # A column of nulls only says nothing about its type.
    return (*before, *(column for column in kept if column.name not in names and column.type is not Plain.NULL))
