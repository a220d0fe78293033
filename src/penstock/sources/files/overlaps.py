"""What holds for a stream of files and what does not, for `penstock check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.core.sizes import count_noun
from penstock.links.globs import matches
from penstock.ports import Remark
from penstock.sources.files.content import FilesContent
from penstock.sources.files.looking import list_files
from penstock.sources.files.options import TEXT, StreamOptions
from penstock.sources.files.places import Place, shown
from penstock.sources.files.seen import compare

if TYPE_CHECKING:
    import pyarrow as pa


def explain(
    place: Place,
    streams: Mapping[str, StreamOptions],
    stream: str,
    content: FilesContent,
    options: StreamOptions,
    seen: pa.Table,
) -> Sequence[Remark]:
    look = list_files(place, options.patterns, options.exclude, options.since)
    found = compare(seen, look.files)
    said = [
        Remark("guarantee", "each file is read once; one that changes before it is read, or while, is not taken"),
        Remark("gap", "deletes are not found: a file that is gone, or a row that a new version of a file lacks"),
    ]
    if not look.files:
        said.append(Remark("gap", f"no file in {place.shown} matches {' or '.join(options.patterns)}"))
    if options.on_change == "ignore":
        said.append(Remark("gap", "a file that changes after it was delivered is not read again (`on_change: ignore`)"))
    if found.vanished:
        said.append(
            Remark("gap", f"delivered and gone since, with rows that stay: {count_noun(found.vanished, 'file')}")
        )
    if look.links:
        links = count_noun(len(look.links), "symbolic link")
        said.append(Remark("gap", f"left out: {links}, such as {shown(look.links[0])}"))
    if not content.declared and content.format in TEXT:
        said.append(
            Remark("advice", "declare `columns`: types that are guessed from the first file may not hold later values")
        )
    if options.bad_values == "null":
        said.append(
            Remark("gap", "values without an exact form in their column's type become NULL (`bad_values: null`)")
        )
    for name, other in streams.items():
        if name != stream:
            both = [
                file.path
                for file in look.files
                if matches(file.path, other.patterns) and not matches(file.path, other.exclude)
            ]
            if both:
                count = count_noun(len(both), "file")
                said.append(Remark("gap", f"the stream {name!r} reads the same {count}, such as {shown(both[0])}"))
    return said
