"""Lists of a REST API: by ranges of time, fetched in parallel into a spool; or whole in every run.

The next mark is known only once pages are read, so the source gathers. Workers read the spool, never the API.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.rest.accounts import AccountSource
from penstock.sources.rest.changing import ChangingSource
from penstock.sources.rest.content import content_of
from penstock.sources.rest.options import Options, StreamOptions
from penstock.sources.rest.source import RestSource

__all__ = ["AccountSource", "ChangingSource", "Options", "RestSource", "StreamOptions", "build", "check_options"]


def check_options(stream: str, options: StreamOptions) -> None:
    """StreamRefused if a stream's options contradict each other."""
    content_of(stream, options, Options(base_url="http://localhost"))


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> AccountSource:
    """The source of a pipeline; connects to nothing yet."""
    return AccountSource(options, streams, context)
