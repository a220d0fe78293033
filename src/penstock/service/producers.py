"""`/v1/streams/{name}/producers/{producer}`: what is held of a producer, and the withdrawal of its open slice."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from penstock.service import openapi
from penstock.service.events import shown
from penstock.service.names import read_name
from penstock.service.problems import Problem
from penstock.service.receiver import Receiver
from penstock.wal.batches import Withdrawal
from penstock.wal.ledger import Producer, Refuse, SentSlice
from penstock.wal.log import Failed, Full


def producers_router(receiver: Receiver) -> APIRouter:
    """The router."""
    router = APIRouter(tags=["producers"])

    @router.get("/v1/streams/{name}/producers/{producer}", **openapi.TELL_PRODUCER)
    async def tell(name: str, producer: str, request: Request) -> Response:
        stream_name, producer_name = read_name(name), read_name(producer)
        receiver.access.require(request, "ingest", stream_name)
        stream = receiver.streams.find(stream_name)
        await receiver.require_certain(stream)
        held = stream.log.ledger.producers.get(producer_name) if stream else None
        held = held or Producer()
        return JSONResponse(
            {
                "stream": stream_name,
                "producer": producer_name,
                "last": _document(held.last),
                "open": _document(held.open, is_open=True),
            }
        )

    @router.delete("/v1/streams/{name}/producers/{producer}/slices/{slice_id}", **openapi.WITHDRAW)
    async def withdraw(name: str, producer: str, slice_id: str, request: Request) -> Response:
        stream_name, producer_name, slice_name = read_name(name), read_name(producer), read_name(slice_id)
        receiver.access.require(request, "ingest", stream_name)
        stream = receiver.streams.find(stream_name)
        await receiver.require_certain(stream)
        held = stream.log.ledger.producers.get(producer_name) if stream else None
        is_open = held is not None and held.open is not None and held.open.slice == slice_name
        is_last = held is not None and held.last is not None and held.last.slice == slice_name
        if stream is None or not (is_open or is_last):
            return JSONResponse({"withdrawn": False, "chunks": 0})
        chunks = len(held.open.digests) if held is not None and held.open is not None and is_open else 0
        outcome = await asyncio.wrap_future(receiver.group.submit(stream.log, Withdrawal(producer_name, slice_name)))
        if isinstance(outcome, Refuse):
            raise Problem(409, outcome.reason, outcome.next_step)
        if isinstance(outcome, Full | Failed):
            status = 507 if isinstance(outcome, Full) else 503
            raise Problem(status, outcome.reason, "look at the disk of the receiver; then send the request again")
        receiver.say(
            f"stream {shown(stream_name)}: slice {shown(slice_name[:12])} of producer {shown(producer_name)} was "
            f"withdrawn ({chunks} chunks)"
        )
        return JSONResponse({"withdrawn": True, "chunks": chunks})

    return router


def _document(sent: SentSlice | None, *, is_open: bool = False) -> dict[str, Any] | None:
    if sent is None:
        return None
    found: dict[str, Any] = {
        "slice": sent.slice,
        "number": sent.number,
        "predecessor": sent.predecessor,
        "chunks": sent.chunks,
        "rows": sent.rows,
        "bounds": sent.bounds,
    }
    return found | ({"held": len(sent.digests)} if is_open else {})
