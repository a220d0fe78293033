"""The ASGI app: routers, and around them what turns every failure into a problem document without secrets."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from penstock import __version__
from penstock.links.http.protocol import REPLAYED, decode_name
from penstock.service import openapi
from penstock.service.batches import batches_router
from penstock.service.health import health_router
from penstock.service.lag import LagFeed, lag_router
from penstock.service.load import Disconnected
from penstock.service.metrics import metrics_router
from penstock.service.problems import Problem, answers
from penstock.service.producers import producers_router
from penstock.service.receiver import Receiver
from penstock.wal.ledger import Ledger

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_HERE = os.path.dirname(os.path.dirname(__file__))
_DEFECT = Problem(
    500, "the request failed by a defect of penstock", "a log line of the receiver says where: please report it"
)
_STREAM = re.compile(r"/v1/streams/([^/]+)/(?:batches|ops)")
_REPLAYED = REPLAYED.lower().encode()
#: characters of a path that are kept as they came
_PATH = "/%:@!$&'()*+,;=~"


def create_app(receiver: Receiver) -> Guard:
    """The app of a receiver."""
    app = FastAPI(
        title="penstock receiver",
        version=__version__,
        description="Takes batches of rows over HTTP, and answers once they are in its write-ahead log.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )

    def require_token(request: Request) -> None:
        receiver.access.require(request, None)

    # Before anything else is looked at: who may not send learns nothing of streams.
    for router in (batches_router(receiver), producers_router(receiver)):
        app.include_router(router, dependencies=[Depends(require_token)])
    app.include_router(health_router(receiver))
    _add_lag(app, receiver)

    @app.get("/openapi.json", include_in_schema=False)
    async def describe(request: Request) -> Response:
        receiver.access.require(request, None)
        return JSONResponse(openapi.complete(app.openapi()))

    @app.exception_handler(Problem)
    async def answer_problem(_: Request, problem: Problem) -> Response:
        return problem.response()

    @app.exception_handler(HTTPException)
    async def answer_http(_: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            allowed = dict(error.headers or {})
            return Problem(405, "this path has no such method", "see `Allow`", headers=allowed).response()
        return Problem(404, "there is nothing at this path", "GET /openapi.json lists all paths").response()

    @app.exception_handler(RequestValidationError)
    async def answer_malformed(_: Request, error: RequestValidationError) -> Response:
        where = ".".join(str(each) for each in error.errors()[0]["loc"])
        return Problem(400, f"{where} is malformed", "GET /openapi.json describes it").response()

    @app.exception_handler(Exception)
    async def answer_defect(_: Request, __: Exception) -> Response:
        return _DEFECT.response()

    return Guard(app, receiver)


def _add_lag(app: FastAPI, receiver: Receiver) -> None:
    """Lag and metrics, of the streams that a token may read."""

    def ledger(name: str) -> Ledger | None:
        stream = receiver.streams.open.get(name)
        return stream.log.ledger if stream else None

    def require_read(request: Request) -> None:
        receiver.access.require_some(request, "read")

    def allows(request: Request, stream: str) -> bool:
        return receiver.access.allows(request, "read", stream)

    def problem(name: str) -> str | None:
        error = receiver.streams.unavailable.get(name)
        return error.what if error else None

    feed = LagFeed(receiver.settings.directory, receiver.streams.now, ledger, problem)
    for router in (lag_router(feed, allows), metrics_router(feed, receiver.requests, allows)):
        app.include_router(
            router,
            dependencies=[Depends(require_read)],
            responses=answers(401, 403, 405, 429, 431, 503),
        )


class Guard:
    """Counts requests, gives paths to the app as they came, and answers for what fails."""

    def __init__(self, app: FastAPI, receiver: Receiver) -> None:
        self.app = app
        self.receiver = receiver

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        # Decoded, a name with a slash would be two segments.
        scope["path"] = quote(scope["raw_path"].decode("ascii"), safe=_PATH)
        status, is_repeated = 0, False

        async def send_counted(message: Message) -> None:
            nonlocal status, is_repeated
            if message["type"] == "http.response.start":
                status = int(message["status"])
                is_repeated = any(name.lower() == _REPLAYED for name, _ in message.get("headers", ()))
            await send(message)

        try:
            with self.receiver.load.request():
                await self.app(scope, receive, send_counted)
        except Problem as problem:
            await problem.response()(scope, receive, send_counted)
        except Disconnected:
            return
        except asyncio.CancelledError:
            if status == 0:
                stopping = Problem(503, "the receiver is stopping", "send it again when it is up")
                await stopping.response()(scope, receive, send_counted)
        except Exception as error:  # noqa: BLE001 (answered, and said without what a request contains)
            self.receiver.say(f"a request failed by a defect of penstock: {type(error).__name__} at {_place(error)}")
            if status == 0:
                await _DEFECT.response()(scope, receive, send_counted)
        finally:
            if status and scope["method"] == "POST" and (found := _STREAM.fullmatch(scope["path"])):
                self._count(found[1], status, is_repeated)

    def _count(self, segment: str, status: int, is_repeated: bool) -> None:
        with suppress(ValueError):
            name = decode_name(segment)
            stream = name if name in self.receiver.streams.open else None
            self.receiver.requests.count(stream, status, is_repeated=is_repeated)


def _place(error: BaseException) -> str:
    """Where an exception comes from. Its message may contain what a client sent."""
    place = "unknown"
    at = error.__traceback__
    while at is not None:
        path = at.tb_frame.f_code.co_filename
        if path.startswith(_HERE):
            place = f"{os.path.relpath(path, _HERE)}:{at.tb_lineno}"
        at = at.tb_next
    return place
