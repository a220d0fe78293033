"""What holds for a stream that lands in files, and what does not, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.core.slices import Kind
from penstock.ports import Remark, StreamInfo
from penstock.sinks.files.layout import Layout, file_number


def remarks(root: str, format_: str, layout: Layout, stream: StreamInfo) -> Sequence[Remark]:
    """Where it lands comes first."""
    folder = os.path.join(root, layout.data)
    if stream.kind is Kind.REFRESH:
        current = os.path.join(root, layout.current)
        return (
            Remark("guarantee", f"lands in {current} ({format_}): each run takes the place of the one before at once"),
            Remark("gap", "a reader that opened the one before last finds its files gone: two are kept"),
        )
    found = [
        Remark("guarantee", f"lands in {folder} ({format_}): each slice is committed once, by its manifest"),
        Remark("gap", "an updated row is delivered again beside its older versions; the highest slice has the newest"),
        Remark("gap", "the files of a slice become visible one after the other; its manifest lists them all"),
    ]
    if others := _others(root, layout):
        found.append(
            Remark("gap", f"{folder} holds files that this pipeline did not write ({others}): readers see both")
        )
    if not stream.primary_key:
        found.append(Remark("advice", "the stream has no primary key by which readers could tell versions of a row"))
    return found


def _others(root: str, layout: Layout) -> str | None:
    """One of the files in the stream's folder that are not ours, or whose they are; None: there is none."""
    folder, begun = os.path.join(root, layout.data), os.path.isdir(os.path.join(root, layout.manifests))
    names = [name for name in (os.listdir(folder) if os.path.isdir(folder) else ()) if name[0] not in "._"]
    if names and (pipelines := layout.other_pipelines(root)):
        return f"of pipeline {pipelines[0]}"
    # Before our first slice nothing there is ours; later on a name tells, and folders are partitions.
    strange = [n for n in names if not begun or (file_number(n) is None and not os.path.isdir(os.path.join(folder, n)))]
    return min(strange, default=None)
