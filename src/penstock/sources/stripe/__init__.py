"""Stripe's lists: a rest source whose streams are known, with the version of the API and the rate limit of the key."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ports import Context
from penstock.sources.stripe.lists import LISTS
from penstock.sources.stripe.live import LiveSettings
from penstock.sources.stripe.options import Options, StreamOptions
from penstock.sources.stripe.presets import account_options, all_stream_options, find_events, stream_options
from penstock.sources.stripe.source import StripeSource

__all__ = ["Options", "StreamOptions", "account_options", "build", "find_events", "stream_options"]


def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> StripeSource:
    """The source of a pipeline; connects to nothing yet. Without streams, every list that is not below another is one.

    StreamRefused if Stripe has no such list.
    """
    chosen = dict(streams) or {name: StreamOptions() for name in LISTS}
    live = {name: found for name, each in chosen.items() if (found := find_events(name, each, options.live))}
    lists = all_stream_options(chosen, live)
    settings = LiveSettings(
        live,
        stream_options("events", StreamOptions()),
        int(options.overlap.total_seconds()),
        options.rescan,
        options.api_version,
    )
    return StripeSource(account_options(options), lists, context, settings)
