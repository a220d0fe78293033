"""Answers that are not 200: problem documents (RFC 9457) with the next step. They repeat no value that was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from penstock.links.http.protocol import PROBLEM

TITLES = {
    400: "The request is malformed",
    401: "A token is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "It contradicts what is held",
    413: "The request is too large",
    415: "The media type or encoding is not supported",
    422: "The batch does not fit the stream",
    429: "Too much at the moment",
    431: "The headers are too large",
    500: "A defect in penstock",
    503: "Not available",
    507: "No space left",
}
#: seconds after which a request may be sent again
RETRY_SECONDS = {429: 1, 503: 5, 507: 30}


class ProblemDocument(BaseModel):
    """Why a request was not carried out, and what to do."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="a URN for this kind of problem", examples=["urn:penstock:problem:409"])
    title: str
    status: int
    detail: str = Field(description="what happened")
    next_step: str = Field(description="what to do")


class Problem(Exception):
    """A request that is not carried out."""

    def __init__(
        self, status: int, detail: str, next_step: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.next_step = next_step
        self.headers = dict(headers or {})
        #: further members of the document
        self.more = more

    def document(self) -> dict[str, Any]:
        return {
            "type": f"urn:penstock:problem:{self.status}",
            "title": TITLES[self.status],
            "status": self.status,
            "detail": self.detail,
            "next_step": self.next_step,
            **self.more,
        }

    def response(self) -> Response:
        headers = dict(self.headers)
        if self.status in RETRY_SECONDS:
            headers.setdefault("Retry-After", str(RETRY_SECONDS[self.status]))
        if self.status == 401:
            headers.setdefault("WWW-Authenticate", "Bearer")
        return Response(json.dumps(self.document()), self.status, headers, media_type=PROBLEM)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an operation can answer with, for the OpenAPI document."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, 500}):
        found[status] = {
            "description": TITLES[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        if status in RETRY_SECONDS:
            found[status]["headers"] = {
                "Retry-After": {"description": "seconds to wait before the next try", "schema": {"type": "integer"}}
            }
    return found
