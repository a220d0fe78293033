"""What the OpenAPI document says of each operation: headers, bodies, and every answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from penstock.links.http import protocol
from penstock.service.ops_schema import OPS_DOCUMENT
from penstock.service.problems import ProblemDocument, answers

#: the name of the scheme for tokens
BEARER = "bearer"


class Taken(BaseModel):
    """A batch that is on disk. With a producer: which chunk of which slice. With a key alone: until when it counts."""

    stream: str
    rows: int = Field(ge=0)
    slice: str | None = Field(default=None, description="the slice's id")
    number: int | None = Field(default=None, ge=1, description="the slice's number in its stream")
    chunk: int | None = Field(default=None, ge=1)
    chunks: int | None = Field(default=None, ge=1, description="chunks of the slice")
    complete: bool | None = Field(default=None, description="the slice is whole, and readers see it")
    key: str | None = Field(default=None, description="the Idempotency-Key of a batch without a producer")
    key_counts_until: str | None = Field(
        default=None, description="from then on, by the log's clock, a batch with this key is a new one"
    )


class HeldSlice(BaseModel):
    """A slice of a producer."""

    slice: str
    number: int = Field(ge=1)
    predecessor: str = Field(description="the id of the slice before it; empty: it is the first")
    chunks: int = Field(ge=1)
    rows: int = Field(ge=0)
    bounds: str = Field(description="what the producer sent along in Penstock-Bounds")


class OpenSlice(HeldSlice):
    """A slice whose chunks are not all held yet."""

    held: int = Field(ge=0, description="chunks that are held")


class HeldOfProducer(BaseModel):
    """What is held of a producer."""

    stream: str
    producer: str
    last: HeldSlice | None = Field(description="its last whole slice")
    open: OpenSlice | None = Field(description="the slice that it is sending")


class Withdrawn(BaseModel):
    """Whether a slice was open, and is withdrawn now."""

    withdrawn: bool
    chunks: int = Field(ge=0, description="chunks that will never be read")


class Live(BaseModel):
    status: str


class Ready(BaseModel):
    status: str
    unavailable_streams: int = Field(ge=0, description="streams whose log cannot be opened")


def _header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


_ID = "^[0-9a-f]{1,128}$"
_BATCH_HEADERS = [
    _header(
        protocol.KEY,
        "of a chunk: the slice's id, `/` and the chunk's number; of a batch without a producer: any new key",
        pattern="^[!-~]{1,255}$",
    ),
    _header(protocol.PRODUCER, "the producer's name, UTF-8, percent-encoded; with it, the next five are required"),
    _header(protocol.SLICE, "the slice's id", pattern=_ID),
    _header(protocol.NUMBER, "the slice's number in its stream, from 1 on", pattern="^[1-9][0-9]{0,17}$"),
    _header(protocol.PREDECESSOR, "the id of the producer's slice before it; not with its first", pattern=_ID),
    _header(protocol.CHUNK, "k/n: chunk k of n", pattern="^[0-9]{1,9}/[0-9]{1,9}$"),
    _header(protocol.ROWS, "rows of the body", pattern="^[0-9]{1,18}$"),
    _header(protocol.DIGEST, "SHA-256 of the decoded body", pattern="^sha-256=[0-9a-f]{64}$"),
    _header(protocol.BOUNDS, "with chunk 1: what the producer wants back when it has lost its store; base64url"),
    _header(protocol.META, "base64url of {source, cursor, max_id, lag_rows, lag_seconds}, each optional"),
    _header("Content-Encoding", "of the body", enum=["gzip", "zstd", "identity"]),
]


def _body(row: dict[str, Any], what: str) -> dict[str, Any]:
    return {
        "required": True,
        "description": what,
        "content": {
            protocol.JSON: {"schema": {"type": "array", "items": row}},
            protocol.NDJSON: {"schema": {"type": "string", "description": "a JSON object in each line"}},
        },
    }


_ROW = {"type": "object", "additionalProperties": True}
_REPLAYED = {
    protocol.REPLAYED: {
        "description": "`true`: the batch was taken before, and nothing was written",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
_TAKE_STATUSES = (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503, 507)
_ASK_STATUSES = (400, 401, 403, 404, 405, 429, 431, 503)


def _operation(
    name: str, summary: str, description: str, model: type[BaseModel], statuses: tuple[int, ...], **extra: Any
) -> dict[str, Any]:
    taken: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": summary}}
    return {
        "operation_id": name,
        "summary": summary,
        "description": description,
        "response_model": None,
        "responses": {**taken, **answers(*statuses)},
        "openapi_extra": extra,
    }


_SECURED: dict[str, Any] = {"security": [{BEARER: []}, {}]}


def _take(name: str, summary: str, description: str, body: dict[str, Any]) -> dict[str, Any]:
    found = _operation(
        name, summary, description, Taken, _TAKE_STATUSES, requestBody=body, parameters=_BATCH_HEADERS, **_SECURED
    )
    found["responses"][200]["headers"] = _REPLAYED
    return found


TAKE_ROWS = _take(
    "take_rows",
    "The batch is on disk",
    "Takes rows. The answer comes after they were synced to the log.",
    _body(_ROW, "rows, each a JSON object"),
)
TAKE_OPS = _take(
    "take_ops",
    "The batch is on disk",
    "Takes documents of ops, which describe changes of entities. The answer comes after they were synced to the log.",
    _body(OPS_DOCUMENT, "documents of ops, version 1"),
)
TELL_PRODUCER = _operation(
    "tell_producer",
    "What is held of a producer",
    "Tells which slice of a producer is the last one, and which one is open.",
    HeldOfProducer,
    _ASK_STATUSES,
    **_SECURED,
)
WITHDRAW = _operation(
    "withdraw_slice",
    "Whether the slice was withdrawn",
    "Withdraws the open slice of a producer: its chunks are never read. A slice that is not held is no mistake.",
    Withdrawn,
    (*_ASK_STATUSES, 409, 507),
    **_SECURED,
)
LIVE = _operation("live", "The process lives", "Whether the process lives.", Live, (405, 429, 431))
READY = _operation("ready", "Batches are taken", "Whether batches are taken.", Ready, (405, 429, 431, 503))


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what is common to all operations."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["ProblemDocument"] = ProblemDocument.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "a token of `penstock token create`; needed as soon as the receiver has one",
        }
    }
    for path in document["paths"].values():
        for operation in path.values():
            # FastAPI documents its own form of 422, which no operation answers with.
            answer = operation["responses"].get("422")
            if answer is not None and "application/json" in answer.get("content", {}):
                del operation["responses"]["422"]
    return document
