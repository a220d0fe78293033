"""Postgres tables: rows added, merged by key or replaced, in one transaction with the ledger that holds the chain."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports import Context
from penstock.sinks.postgres.options import Options, StreamOptions
from penstock.sinks.postgres.sink import PostgresSink

__all__ = ["SLICE_BYTES", "Options", "PostgresSink", "StreamOptions", "build"]

#: bytes of a slice unless the file says otherwise: what it writes is locked until its commit, a few seconds for these
SLICE_BYTES = 128 << 20


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> PostgresSink:
    """The sink of a pipeline; opens nothing yet."""
    return PostgresSink(options, streams, context)
