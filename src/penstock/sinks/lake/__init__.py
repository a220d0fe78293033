"""Iceberg tables: a log of versions, or one current row per key. One conditional commit carries data and chain."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.lake.lake import Lake
from penstock.ports import Context
from penstock.sinks.lake.options import Options, StreamOptions
from penstock.sinks.lake.sink import LakeSink

__all__ = ["LakeSink", "Options", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> LakeSink:
    """The sink of a pipeline; opens nothing yet."""
    lake = Lake.from_options(options, folder=context.folder, pipeline=context.pipeline)
    return LakeSink(lake, options, streams, context)
