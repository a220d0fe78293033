"""Streams that penstock's own receiver has written to its log: rows that were sent over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.wal.options import EntityOptions, FanOutOptions, Options, StreamOptions
from penstock.sources.wal.source import WalSource

__all__ = ["EntityOptions", "FanOutOptions", "Options", "StreamOptions", "WalSource", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> WalSource:
    """The source of a pipeline; opens nothing yet."""
    return WalSource(os.path.join(context.folder, options.directory), streams, context)
