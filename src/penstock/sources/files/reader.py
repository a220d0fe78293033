"""A slice's rows, inside a worker: pieces of files, one after the other, with the columns that folders name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.core.content import Column, Content
from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamRefused
from penstock.sources.files.content import FilesContent
from penstock.sources.files.conversion import BadValue, Fitter
from penstock.sources.files.places import File, Place, Version, shown

if TYPE_CHECKING:
    import pyarrow as pa

#: the name that Hive gives to the folder of rows without a value
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class FilesReader:
    """Reads pieces of files. Small and picklable."""

    place: Place
    stream: str
    #: the slice's content
    content: str = field(repr=False)

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        content = FilesContent.read(Content.parse(self.content))
        schema = arrow_schema(content.columns)
        return pa.RecordBatchReader.from_batches(schema, self._batches(parse(part.terms), content, schema))

    def _batches(self, terms: dict[str, Any], content: FilesContent, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        files = [File(path, Version(*version)) for path, *version in terms["files"]]
        format_ = content.reading
        partitions = [column for column in content.columns if column.name in content.partitions]
        for at, start, end in terms["pieces"]:
            values = folder_values(files[at].path, partitions, self.place, self.stream)
            try:
                yield from self._with_values(
                    format_.read(self.place, files[at], (start, end), content.in_files, self.stream), values, schema
                )
            except (BadValue, StreamRefused) as error:
                # Refused while a plan looks at a file; a worker meets it only in a file that has changed since.
                raise StreamFailed(
                    f"{shown(files[at].path)} in {self.place.shown}: {error}",
                    next_step="declare the column with a type that holds all values, or set `bad_values: null`",
                    stream=self.stream,
                ) from None
            except (pa.ArrowException, OSError) as error:
                raise StreamFailed(
                    f"{shown(files[at].path)} in {self.place.shown} is damaged: {error}",
                    next_step=f"drop the open slice with `penstock state recover FILE --stream {self.stream}`, and put "
                    "a whole copy of the file in its place",
                    stream=self.stream,
                ) from None

    def _with_values(
        self, batches: Iterator[pa.RecordBatch], values: dict[str, pa.Array], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            arrays = [
                pa.repeat(values[each.name][0], batch.num_rows) if each.name in values else batch.column(each.name)
                for each in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def folder_values(path: str, partitions: list[Column], place: Place, stream: str) -> dict[str, pa.Array]:
    """The values that folders of a path name, each an array of one; StreamRefused if one is missing or does not fit."""
    if not partitions:
        return {}
    import pyarrow as pa

    there = dict(name.split("=", 1) for name in path.split("/")[:-1] if "=" in name)
    found = {}
    for column in partitions:
        if column.name not in there:
            raise StreamRefused(
                f"{shown(path)} in {place.shown} is in no folder {column.name}=…, and {column.name} is one of "
                "`partitions`",
                next_step="narrow `path`, or leave the file out with `exclude`",
                stream=stream,
            )
        text = unquote(there[column.name], errors="surrogateescape")
        try:
            values = pa.array([None if text == _HIVE_NULL else text], pa.string())
            found[column.name] = Fitter("fail").fit(column.name, values, column.type)
        except (BadValue, UnicodeEncodeError):
            raise StreamRefused(
                f"the folder {column.name}={shown(text)} of {shown(path)} in {place.shown} has no exact form as "
                f"{column.type}",
                next_step=f"correct the type of {column.name} under `partitions`, or leave the file out with `exclude`",
                stream=stream,
            ) from None
    return found
