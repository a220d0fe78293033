"""Postgres tables: by a cursor and a tiebreaker (keyset), or whole in every run (refresh).

Everything is checked before a row is read. The horizon takes care of rows that commit late below the mark.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.postgres.options import Options, StreamOptions
from penstock.sources.postgres.source import PostgresSource
from penstock.sources.postgres.validate import check_options

__all__ = ["Options", "PostgresSource", "StreamOptions", "build", "check_options"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> PostgresSource:
    """The source of a pipeline; connects to nothing yet."""
    return PostgresSource(options, streams, context)
