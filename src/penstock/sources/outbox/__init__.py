"""Change ops from an outbox that generated triggers fill, in the order of commits: deletes and fan-outs included."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.outbox.options import Options, StreamOptions
from penstock.sources.outbox.source import OutboxSource

__all__ = ["Options", "OutboxSource", "StreamOptions", "build"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> OutboxSource:
    """The source of a pipeline; connects to nothing yet."""
    return OutboxSource(options, streams, context)
