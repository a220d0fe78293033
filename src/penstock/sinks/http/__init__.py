"""Rows sent over HTTP to penstock's receiver or to any other one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.links.http.sending import Sender, SendingOptions
from penstock.ports import Context
from penstock.sinks.http.memory import Memory
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.penstock import PenstockReceiver
from penstock.sinks.http.plain import PlainReceiver
from penstock.sinks.http.sink import HttpSink, PenstockHttpSink, PlainHttpSink

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpSink", "Options", "StreamOptions", "build"]


def build(
    options: Options,
    streams: Mapping[str, StreamOptions],
    context: Context,
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
) -> HttpSink:
    """`transport` makes what sends the requests, if not a connection."""
    sender = Sender(
        _sending(options, context.folder), is_cancelled=context.is_cancelled, say=context.say, transport=transport
    )
    memory = Memory(context.spools)
    if options.protocol == "plain":
        plain = PlainReceiver(sender, options, streams, memory, context.last_position)
        return PlainHttpSink(options, streams, context, sender, plain, memory)
    into = {name: stream.into for name, stream in streams.items() if stream.into is not None}
    receiver = PenstockReceiver(sender, context.pipeline, into, context.origin, context.last_position)
    return PenstockHttpSink(options, streams, context, sender, receiver, memory)


def _sending(options: Options, folder: str) -> SendingOptions:
    def path(name: str | None) -> str | None:
        return os.path.join(folder, os.path.expanduser(name)) if name else None

    tls = options.tls
    return SendingOptions(
        url=options.url,
        auth=options.auth,
        headers=options.headers,
        timeout=options.timeout,
        retries=options.retries,
        retry_seconds=options.retry_seconds,
        retry_most=options.retry_most,
        wait=options.wait,
        ca=path(tls.ca) if tls else None,
        certificate=path(tls.certificate) if tls else None,
        key=path(tls.key) if tls else None,
    )
