"""Files in a local folder or on S3: Parquet, CSV or NDJSON. The slice's manifest is the commit."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.links.s3 import S3Options
from penstock.ports import Context
from penstock.sinks.files.local import LocalFolder
from penstock.sinks.files.options import Options, StreamOptions, split_bucket
from penstock.sinks.files.sink import FilesSink

__all__ = ["FilesSink", "Options", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> FilesSink:
    if options.on_s3:
        from penstock.sinks.files.bucket import BucketFolder

        bucket, prefix = split_bucket(options.directory)
        place = BucketFolder(bucket, prefix, options.s3 or S3Options())
        return FilesSink(context.pipeline, place, options, streams, context.probe)
    root = os.path.abspath(os.path.join(context.folder, os.path.expanduser(options.directory)))
    return FilesSink(context.pipeline, LocalFolder(root), options, streams, context.probe)
