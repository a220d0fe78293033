"""Files in a local folder: Parquet, CSV or NDJSON. The slice's manifest is the commit."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.ports import Context
from penstock.sinks.files.local import LocalFolder
from penstock.sinks.files.options import Options, StreamOptions
from penstock.sinks.files.sink import FilesSink

__all__ = ["FilesSink", "Options", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> FilesSink:
    root = os.path.abspath(os.path.join(context.folder, os.path.expanduser(options.directory)))
    return FilesSink(context.pipeline, LocalFolder(root), options, streams, context.probe)
