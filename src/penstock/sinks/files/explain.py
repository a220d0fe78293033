"""Explain what holds for a stream that lands in files, and what does not."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.slices import Kind
from penstock.ports import Remark, StreamInfo
from penstock.sinks.files.folder import Folder, other_pipelines
from penstock.sinks.files.layout import Layout, file_number


def explain_stream(folder: Folder, format_: str, layout: Layout, stream: StreamInfo) -> Sequence[Remark]:
    place = folder.path(layout.data)
    if stream.kind is Kind.REFRESH:
        current = folder.path(folder.current(layout))
        return (
            Remark("guarantee", f"lands in {current} ({format_}): each run replaces the one before at once"),
            Remark("gap", "a reader that opened the one before last finds its files gone: two are kept"),
        )
    remarks = [
        Remark("guarantee", f"lands in {place} ({format_}): each slice is committed once, by its manifest"),
        Remark("gap", "an updated row is delivered again beside its older versions; the highest slice has the newest"),
        Remark("gap", "the files of a slice become visible one after the other; its manifest lists them all"),
    ]
    if others := _find_foreign(folder, layout):
        remarks.append(
            Remark("gap", f"{place} holds files that this pipeline did not write ({others}): readers see both")
        )
    if not stream.primary_key:
        remarks.append(Remark("advice", "the stream has no primary key by which readers could tell versions of a row"))
    return remarks


def _find_foreign(folder: Folder, layout: Layout) -> str | None:
    """A file in the stream's folder that this pipeline did not write, or the pipeline that did; None: there is none."""
    begun = folder.has(layout.manifests)
    names = [name for name in folder.names(layout.data, limit=1000) if name[0] not in "._"]
    if names and (pipelines := other_pipelines(folder, layout)):
        return f"of pipeline {pipelines[0]}"
    # Before the first slice every file is foreign; later a name tells, and folders are partitions.
    foreign = [n for n in names if not begun or (file_number(n) is None and not folder.has(f"{layout.data}/{n}"))]
    return min(foreign, default=None)
