"""Lake tables, read by number: each reader has its own mark in the one order and reads only new rows."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.lake.lake import Lake
from penstock.ports import Context
from penstock.sources.lake.options import Options, StreamOptions
from penstock.sources.lake.source import LakeSource

__all__ = ["LakeSource", "Options", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> LakeSource:
    """The source of a pipeline; opens nothing yet."""
    lake = Lake.from_options(options, folder=context.folder, pipeline=context.pipeline)
    return LakeSource(lake, options, streams, context)
