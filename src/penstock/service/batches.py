"""`POST /v1/streams/{name}/batches` and `/ops`: takes rows and documents of ops, and answers once they are on disk."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from penstock.errors import PenstockError
from penstock.links.http import protocol
from penstock.service import bodies, openapi
from penstock.service.events import shown
from penstock.service.names import read_name
from penstock.service.problems import Problem
from penstock.service.receiver import Receiver
from penstock.service.streams import Stream
from penstock.wal.batches import Batch
from penstock.wal.ledger import Bare, Chunk, Known, Ledger, Refuse, Take, judge_bare, judge_chunk
from penstock.wal.log import Failed, Full, Outcome
from penstock.wal.meta import Meta, read_meta

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the headers of a batch say."""

    chunk: protocol.SentChunk | None
    #: of a batch without a producer; None: it has no key
    key: str | None
    owner: str
    meta: Meta | None

    def sender(self, digest: str, rows: int) -> Chunk | Bare | None:
        sent = self.chunk
        if sent is None:
            return None if self.key is None else Bare(self.owner, self.key, digest, rows)
        return Chunk(
            sent.producer,
            sent.slice,
            sent.number,
            sent.predecessor,
            sent.chunk,
            sent.chunks,
            sent.digest,
            sent.rows,
            sent.bounds,
        )


def batches_router(receiver: Receiver) -> APIRouter:
    """The router."""
    router = APIRouter(tags=["batches"])

    @router.post("/v1/streams/{name}/batches", **openapi.TAKE_ROWS)
    async def take_rows(name: str, request: Request) -> Response:
        return await _take(receiver, read_name(name), "rows", request)

    @router.post("/v1/streams/{name}/ops", **openapi.TAKE_OPS)
    async def take_ops(name: str, request: Request) -> Response:
        return await _take(receiver, read_name(name), "ops", request)

    return router


async def _take(receiver: Receiver, name: str, kind: str, request: Request) -> Response:
    owner = receiver.access.require(request, "ingest", name)
    stream = receiver.streams.find(name)
    form = bodies.read_form(request.headers)
    sent = _read_headers(receiver, name, owner, request)
    _require_kind(receiver, name, stream, kind)
    async with receiver.load.body(request) as raw:
        outcome, rows, stream = await _carry_out(receiver, name, kind, stream, form, sent, raw)
    return _answer(receiver, stream, sent, outcome, rows)


async def _carry_out(
    receiver: Receiver, name: str, kind: str, stream: Stream | None, form: bodies.Form, sent: _Sent, raw: bytes
) -> tuple[Outcome, int, Stream | None]:
    """What became of a batch, its rows, and the stream."""
    # A decoded body is large: those that wait for a thread wait as they were sent.
    async with receiver.decoding:
        limits = receiver.settings.limits
        body = await receiver.work(partial(bodies.decode, raw, form, limits.decoded_bytes))
        _require_digest(sent.chunk, body)
        rows = len(body.rows)
        entry = Batch(sent.sender(body.digest, rows), rows, b"", kind=kind, meta=sent.meta)
        # What was taken before is answered as before, whatever the stream is declared to be now, however full it is.
        verdict = _judge(receiver, stream.log.ledger if stream else Ledger(), entry)
        if isinstance(verdict, Take):
            check = stream.check if stream else receiver.streams.check_for(name, kind)
            await receiver.work(partial(check.check, body.rows))
            packed = await receiver.work(partial(bodies.compress, body.rows))
        del body
    if not isinstance(verdict, Take):
        await receiver.require_certain(stream)
        return verdict, rows, stream
    await receiver.work(partial(receiver.room.require_room, receiver.streams.open, stream, len(packed)))
    if stream is None:
        stream = await receiver.work(partial(_create, receiver, name, kind))
        _require_kind(receiver, name, stream, kind)
    batch = Batch(entry.sender, rows, packed, stream.version, kind, sent.meta)
    return await asyncio.wrap_future(receiver.group.submit(stream.log, batch)), rows, stream


def _create(receiver: Receiver, name: str, kind: str) -> Stream:
    try:
        return receiver.streams.create(name, kind)
    except PenstockError as error:
        raise Problem(503, f"the log of stream {shown(name)} cannot begin: {error.what}", error.next_step) from None
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Problem(
            507 if is_full else 503,
            f"the log of stream {shown(name)} cannot begin: {error.strerror}",
            "make room on the receiver's disk" if is_full else "correct that at the receiver",
        ) from None


def _judge(receiver: Receiver, ledger: Ledger, entry: Batch) -> Take | Known | Refuse:
    """The verdict before the batch is checked. The one that counts is the log's."""
    if isinstance(entry.sender, Chunk):
        return judge_chunk(ledger, entry.sender)
    if isinstance(entry.sender, Bare):
        kept = int(receiver.settings.log.key_time.total_seconds() * _MICROSECONDS)
        return judge_bare(ledger, entry.sender, max(receiver.streams.now(), ledger.clock) - kept)
    return Take()


# ---------------------------------------------------------------- headers


def _read_headers(receiver: Receiver, name: str, owner: str, request: Request) -> _Sent:
    options = receiver.streams.options(name)
    try:
        chunk = protocol.read_chunk(request.headers)
        key = request.headers.get(protocol.KEY)
        if chunk is None and key is not None:
            protocol.check_key(key)
        text = request.headers.get(protocol.META)
        meta = None
        if text is not None:
            try:
                meta = read_meta(protocol.decode_meta(text))
            except protocol.BadHeader:
                raise
            except ValueError as error:
                raise protocol.BadHeader(protocol.META, str(error)) from None
    except protocol.BadHeader as error:
        raise Problem(
            400, f"{error.header}: {error.reason}", "correct the header; docs/http-protocol.md describes all of them"
        ) from None
    if chunk is None and key is None and options.keys == "required":
        raise Problem(
            400,
            f"the request has no {protocol.KEY}: sent again after a lost answer, its rows would be taken twice",
            f"send a new {protocol.KEY} with each batch, and the same one with a retry; or declare the stream with "
            "`keys: optional`",
        )
    if options.producers and (chunk is None or chunk.producer not in options.producers):
        who = "a batch without a producer" if chunk is None else f"producer {shown(chunk.producer)}"
        raise Problem(
            403, f"stream {shown(name)} does not take {who}", "list the producer under `producers` of the stream"
        )
    return _Sent(chunk, key, owner, meta)


def _require_digest(sent: protocol.SentChunk | None, body: bodies.Body) -> None:
    if sent is None:
        return
    if sent.digest != body.digest:
        raise Problem(
            400, f"{protocol.DIGEST} is not that of the decoded body", "send the body that the digest was made of"
        )
    if sent.rows != len(body.rows):
        raise Problem(
            400, f"{protocol.ROWS} is {sent.rows}, and the body has {len(body.rows)} rows", "correct the header"
        )


def _require_kind(receiver: Receiver, name: str, stream: Stream | None, kind: str) -> None:
    if stream is not None:
        takes = stream.check.kind
    elif name in receiver.settings.streams:
        takes = receiver.streams.options(name).takes
    else:
        return
    if takes != kind:
        path = "batches" if takes == "rows" else "ops"
        raise Problem(
            409, f"stream {shown(name)} takes {takes}", f"send to …/{path}, or give the {kind} a stream of their own"
        )


# ---------------------------------------------------------------- answers


def _answer(receiver: Receiver, stream: Stream | None, sent: _Sent, outcome: Outcome, rows: int) -> Response:
    if isinstance(outcome, Refuse):
        if sent.chunk is not None:
            name = stream.name if stream else ""
            receiver.say_refused(shown(name), shown(sent.chunk.producer), sent.chunk.slice, outcome.reason)
        raise Problem(409, outcome.reason, outcome.next_step)
    if isinstance(outcome, Full):
        raise Problem(
            507,
            outcome.reason,
            "run the pipelines that read the stream: what all of them have read is deleted. Or raise `budget`",
        )
    if isinstance(outcome, Failed):
        raise Problem(503, outcome.reason, "look at the disk of the receiver; the batch is to be sent again")
    assert stream is not None
    document: dict[str, Any] = {"stream": stream.name, "rows": rows}
    if sent.chunk is not None:
        document |= {
            "slice": sent.chunk.slice,
            "number": sent.chunk.number,
            "chunk": sent.chunk.chunk,
            "chunks": sent.chunk.chunks,
            "complete": sent.chunk.chunk == sent.chunk.chunks,
        }
    elif sent.key is not None:
        document |= {"key": sent.key, "key_counts_until": _counts_until(receiver, stream, sent.owner, sent.key)}
    headers = {protocol.REPLAYED: "true"} if isinstance(outcome, Known) else {}
    return JSONResponse(document, headers=headers)


def _counts_until(receiver: Receiver, stream: Stream, owner: str, key: str) -> str:
    """Until when a key is remembered, by the log's clock."""
    known = stream.log.ledger.keys.get((owner, key))
    at = known.at if known is not None else receiver.streams.now()
    until = datetime.fromtimestamp(at / _MICROSECONDS, UTC) + receiver.settings.log.key_time
    return f"{until:%Y-%m-%dT%H:%M:%SZ}"
