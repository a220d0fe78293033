"""Proposes streams for the files of a folder: one for each folder and kind of file, with columns by its newest file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.core.sizes import count_noun
from penstock.errors import PenstockError
from penstock.links.globs import escape, matches
from penstock.ports import DiscoveredStream
from penstock.sources.files.content import content_of
from penstock.sources.files.looking import list_files
from penstock.sources.files.options import COMPRESSIONS, SUFFIXES, TEXT, StreamOptions
from penstock.sources.files.places import File, Place, shown

#: types of values in names of folders, the narrower ones first
_FOLDER_TYPES = {"int64": re.compile(r"-?[1-9]\d{0,17}|0"), "date": re.compile(r"\d{4}-[01]\d-[0-3]\d")}


def discover(place: Place, directory: str, streams: Mapping[str, StreamOptions]) -> Iterator[DiscoveredStream]:
    """Every folder directly below the place, and the place itself, by kind of file."""
    groups: dict[tuple[str, str], list[File]] = defaultdict(list)
    for file in list_files(place, ["**"], (), None).files:
        if suffix := _suffix(file.path):
            groups[file.path.rpartition("/")[0].partition("/")[0], suffix].append(file)
    names = [_plain_name(folder, suffix) for folder, suffix in groups]
    for (folder, suffix), files in sorted(groups.items()):
        name = _plain_name(folder, suffix)
        if names.count(name) > 1:
            name += suffix.replace(".", "_")
        yield _propose(place, directory, name, folder, suffix, files, streams)


def _suffix(path: str) -> str:
    """The end of a name that tells its format, with that of its compression."""
    name = path.rpartition("/")[2]
    packed = next((ending for ending in COMPRESSIONS if name.endswith(ending)), "")
    found = next((ending for ending in SUFFIXES if name.removesuffix(packed).endswith(ending)), "")
    return found + packed if found else ""


def _plain_name(folder: str, suffix: str) -> str:
    """The folder as the name of a stream; for files directly in the place, the kind of file."""
    return re.sub(r"\W+", "_", folder, flags=re.ASCII).strip("_") or suffix.split(".")[1]


def _propose(
    place: Place,
    directory: str,
    name: str,
    folder: str,
    suffix: str,
    files: Sequence[File],
    streams: Mapping[str, StreamOptions],
) -> DiscoveredStream:
    newest = files[-1]
    below = f"{escape(folder)}/" if folder else ""
    is_deep = any(file.path.count("/") > (1 if folder else 0) for file in files)
    options: dict[str, Any] = {"path": f"{below}{'**/' if is_deep else ''}*{suffix}"}
    if partitions := _partitions(files):
        options["partitions"] = partitions
    reasons = ["each file is read once, when it has settled"]
    columns: tuple[tuple[str, str], ...] = ()
    refused = None
    try:
        content = content_of(directory, "", StreamOptions.model_validate(options), None)
        found = content.reading.guess(place, newest, name)
        if not found:
            refused = f"{shown(newest.path)} is empty, so the columns are not known; declare `columns`"
        in_files = {each.name: str(each.type) for each in found if each.name not in partitions}
        columns = (*in_files.items(), *partitions.items())
        if found and content.format in TEXT:
            options["columns"] = in_files
            reasons.append(f"the types of columns are guessed from {shown(newest.path)}: check them")
    except PenstockError as error:
        refused = f"{error.what}; {error.next_step}"
    readers = (stream for stream, each in streams.items() if matches(newest.path, each.patterns))
    return DiscoveredStream(
        name=name,
        what=count_noun(len(files), f"{suffix[1:]} file"),
        columns=columns,
        bytes=sum(file.version.size for file in files),
        options=options,
        reasons=tuple(reasons),
        refused=refused,
        read_by=next(readers, None),
        reads_only_new=True,
    )


def _partitions(files: Sequence[File]) -> dict[str, str]:
    """The columns that every file has in names of its folders, with a type that all values have."""
    values: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    for file in files:
        there = dict(name.split("=", 1) for name in file.path.split("/")[:-1] if "=" in name)
        for key, value in there.items():
            values[key].add(value)
            counts[key] += 1
    whole = [key for key, count in counts.items() if count == len(files) and key]
    return {
        key: next(
            (type_ for type_, form in _FOLDER_TYPES.items() if all(form.fullmatch(each) for each in values[key])),
            "string",
        )
        for key in whole
    }
