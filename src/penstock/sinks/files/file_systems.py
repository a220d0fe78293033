"""Whether files can be renamed from where they are staged to where readers see them.

A rename does not reach another file system. If that were found out only after the manifest was written, a slice would
be committed and never become visible.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from penstock.errors import StreamRefused
from penstock.sinks.files.layout import Layout


def check_one_file_system(root: str, layout: Layout, folders: Iterable[str] = ()) -> None:
    """StreamRefused if the stream's folder, or one of these, is on another file system than what is staged for it."""
    staged = os.path.join(root, layout.meta)
    for folder in (layout.data, *folders):
        path = os.path.join(root, folder)
        if _device(path) != _device(staged):
            raise StreamRefused(
                f"the folder {path} is on another file system than {staged}, where files are staged: they could not be "
                "renamed into it, and readers would never see them",
                next_step="set `directory` of the sink to a folder on that file system, or make "
                f"{path} a folder of the file system that holds {root}",
                pipeline=layout.pipeline,
                stream=layout.stream,
            )


def _device(path: str) -> int:
    """The file system of a folder, or of the one in which it would be made."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev
