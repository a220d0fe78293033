"""A Stripe account and its lists, as a rest source has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused
from penstock.links.http.options import Auth
from penstock.sources import rest
from penstock.sources.rest.change_options import Changes
from penstock.sources.rest.options import Time
from penstock.sources.stripe.lists import (
    BY_CREATED,
    CHILDREN,
    EVENTS,
    EVERYTHING,
    LISTS,
    TIME_FIELDS,
    WHOLE,
    ListEvents,
)
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


def find_events(stream: str, options: StreamOptions, live: bool) -> tuple[str, ListEvents] | None:
    """The list of a stream and the events that are applied to it; None: none are.

    StreamRefused if the stream asks for events that do not exist, or that do not fit what is listed.
    """
    name, is_live = options.list or stream, live if options.live is None else options.live
    if not is_live:
        return None
    if name not in EVENTS:
        if not options.live or name not in (*LISTS, *CHILDREN):
            return None
        raise StreamRefused(
            f"`live` has no events to apply to {name}: "
            + (
                "the list is read whole in every run"
                if name in (*WHOLE, *CHILDREN)
                else "Stripe has none for its objects"
            ),
            next_step="leave `live` out of the stream",
            stream=stream,
        )
    if options.params:
        raise StreamRefused(
            f"`params` ({', '.join(options.params)}) select or change what the list has, and events are not filtered "
            "by them: `live` would deliver other objects, or other fields",
            next_step="leave `params` out, or set `live: false` on the stream",
            stream=stream,
        )
    return name, EVENTS[name]


def stream_options(
    stream: str, options: StreamOptions, parent: str | None = None, *, live: bool = False
) -> rest.StreamOptions:
    """A list as a stream of a rest source; StreamRefused if Stripe has no such list.

    `parent` is the stream with the parents of a list below others.
    """
    name = options.list or stream
    if name in CHILDREN:
        child = CHILDREN[name]
        return rest.StreamOptions(
            path=child.path,
            params={**child.params, **options.params},
            parent=parent or child.parent,
            parent_column=child.column,
            columns=options.columns,
            fields=options.fields,
            json_column=options.json_column,
            time_range=options.time_range,
        )
    if name not in LISTS:
        raise StreamRefused(
            f"there is no list {name!r} of Stripe{did_you_mean(name, [*LISTS, *CHILDREN])}",
            next_step=f"name one with `list`: {', '.join([*LISTS, *CHILDREN])}",
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
        changes=Changes() if live else None,
    )


def all_stream_options(
    streams: Mapping[str, StreamOptions], live: Collection[str] = ()
) -> dict[str, rest.StreamOptions]:
    """All streams of a pipeline; to those that are `live`, events are applied.

    A list below others takes the stream that reads its parents, whatever its name.
    """
    readers = {each.list or stream: stream for stream, each in reversed(list(streams.items()))}
    found = {}
    for stream, each in streams.items():
        child = CHILDREN.get(each.list or stream)
        if child and child.parent not in readers:
            raise StreamRefused(
                f"the list {each.list or stream} is read for each object of {child.parent}, which is not a "
                "stream of this pipeline",
                next_step=f"add the stream {child.parent}",
                stream=stream,
            )
        found[stream] = stream_options(stream, each, readers[child.parent] if child else None, live=stream in live)
    return found
