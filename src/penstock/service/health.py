"""`/healthz` and `/readyz`: whether the process lives, and whether it takes batches. They need no token."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from penstock.service import openapi
from penstock.service.problems import Problem
from penstock.service.receiver import Receiver


def health_router(receiver: Receiver) -> APIRouter:
    """The router."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", **openapi.LIVE)
    async def live() -> Response:
        return JSONResponse({"status": "alive"})

    @router.get("/readyz", **openapi.READY)
    async def ready() -> Response:
        if receiver.load.is_stopping:
            raise Problem(503, "the receiver is stopping", "send requests again when it is up")
        return JSONResponse({"status": "ready", "unavailable_streams": len(receiver.streams.unavailable)})

    return router
