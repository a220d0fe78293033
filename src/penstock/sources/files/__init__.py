"""Files in local folders, each read once: Parquet, ORC, CSV, NDJSON, JSON arrays. A mark is the set of seen files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.files.options import Options, StreamOptions
from penstock.sources.files.places import LocalFolder
from penstock.sources.files.source import FilesSource

__all__ = ["FilesSource", "Options", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> FilesSource:
    """The source of a pipeline; opens nothing yet."""
    root = os.path.abspath(os.path.join(context.folder, os.path.expanduser(options.directory)))
    return FilesSource(LocalFolder(root), options, streams, context)
