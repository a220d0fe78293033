"""A Stripe account and its lists, as a rest source has them."""

from __future__ import annotations

from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused
from penstock.links.http.options import Auth
from penstock.sources import rest
from penstock.sources.rest.options import Time
from penstock.sources.stripe.lists import BY_CREATED, EVERYTHING, LISTS, TIME_FIELDS
from penstock.sources.stripe.options import Options, StreamOptions


def account_options(options: Options) -> rest.Options:
    """The account as a rest source has it."""
    headers = {"Stripe-Version": options.api_version}
    if options.account:
        headers["Stripe-Account"] = options.account
    return rest.Options(
        base_url=options.base_url,
        auth=Auth(bearer=options.api_key),
        headers=headers,
        rate_limit=options.allowed_rate,
        concurrency=options.concurrency,
        max_concurrent_streams=options.max_concurrent_streams,
        time_range=options.time_range,
    )


def stream_options(stream: str, options: StreamOptions) -> rest.StreamOptions:
    """A list as a stream of a rest source; StreamRefused if Stripe has no such list."""
    name = options.list or stream
    if name not in LISTS:
        raise StreamRefused(
            f"there is no list {name!r} of Stripe{did_you_mean(name, LISTS)}",
            next_step=f"name one with `list`: {', '.join(LISTS)}",
            stream=stream,
        )
    return rest.StreamOptions(
        path=LISTS[name],
        params={**EVERYTHING.get(name, {}), **options.params},
        time=Time(field=TIME_FIELDS.get(name, "created")) if name in BY_CREATED else None,
        columns=options.columns,
        fields=options.fields,
        json_column=options.json_column,
        time_range=options.time_range,
    )
