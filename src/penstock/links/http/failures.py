"""What an answer means: failures by kind, human-readable and without secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from penstock.errors import NotOffered, StreamFailed

#: answers after which the same request may succeed
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
#: answers that say that the account may not use, or does not have, this resource
REFUSED = frozenset({403, 404, 405, 410, 451})
#: those of them that say that there is no such resource
GONE = frozenset({404, 410})
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid", "x-correlation-id")
_MESSAGE_CHARACTERS = 300
#: a larger `x-ratelimit-reset` is a time since 1970, a smaller one a number of seconds
_EARLIEST_RESET = 1_000_000_000


class ResourceRefused(NotOffered):
    """The account may not use this resource, or there is none."""

    #: the status of the answer
    status: int = 0


class RequestRefused(StreamFailed):
    """The server does not take this request (400, 422, …); a retry would not help."""

    #: the status of the answer
    status: int = 0


class Malformed(ValueError):
    """A body that is no JSON: cut off on the way, perhaps. Tried again."""


class AnswerLost(Exception):
    """A request without an answer; it may be tried again."""

    def __init__(self, trouble: str, *, connect: bool = False) -> None:
        super().__init__(trouble)
        self.trouble = trouble
        #: whether no connection was made at all
        self.connect = connect


def read_lost(error: Exception, timeout: float) -> AnswerLost:
    """What an error of the HTTP client means."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return AnswerLost(f"no answer within {timeout:g} s")
    if isinstance(error, httpx.ConnectError):
        return AnswerLost(f"the server cannot be reached: {error}", connect=True)
    if isinstance(error, httpx.DecodingError):
        return AnswerLost(f"the body cannot be decompressed: {error}")
    return AnswerLost(f"the connection was lost: {type(error).__name__}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    #: by lower-case name
    headers: dict[str, str]
    body: bytes
    #: seconds between the request and the answer
    seconds: float = 0.0

    @property
    def date(self) -> datetime | None:
        """The server's clock; None: it does not say."""
        return read_http_date(self.headers.get("date"))

    @property
    def request_id(self) -> str | None:
        """The provider's id of the request, by which its support finds it; None: it gives none."""
        return next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)


@lru_cache(maxsize=64)
def read_http_date(value: str | None) -> datetime | None:
    """A date as HTTP spells it; None if there is none, or it is not one."""
    if not value:
        return None
    try:
        found = parsedate_to_datetime(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def retry_after(value: str | None, now: datetime) -> float:
    """Seconds that the server wants us to wait: a number or a date; 0 if it does not say."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        until = read_http_date(value)
        return max(0.0, (until - now).total_seconds()) if until else 0.0


def may_succeed_later(answer: Answer) -> bool:
    """Whether the same request may succeed later: the server is busy, or too many were sent.

    Some providers say so with 403, which otherwise means that the resource is forbidden.
    """
    return answer.status in TRANSIENT or (answer.status == 403 and _is_limited(answer))


def wait_of(answer: Answer, now: datetime) -> float:
    """Seconds that the server wants us to wait; 0 if it does not say."""
    wait = retry_after(answer.headers.get("retry-after"), now)
    return wait or (_until_reset(answer, now) if answer.headers.get("x-ratelimit-remaining") == "0" else 0.0)


def _is_limited(answer: Answer) -> bool:
    return "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"


def _until_reset(answer: Answer, now: datetime) -> float:
    """`x-ratelimit-reset`: seconds, or a time since 1970, by the server's clock."""
    try:
        reset = float(answer.headers.get("x-ratelimit-reset", ""))
    except ValueError:
        return 0.0
    if reset < _EARLIEST_RESET:
        return max(0.0, reset)
    return max(0.0, reset - (answer.date or now).timestamp())


def describe(answer: Answer) -> str:
    """The status, the provider's own message and its request id, for a message."""
    said = f"status {answer.status}"
    if message := _message(answer.body):
        said += f" ({message})"
    return f"{said}, request id {answer.request_id}" if answer.request_id else said


def _message(body: bytes) -> str | None:
    """What the provider says in its error document; None if there is none that is read easily."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    for key in ("error", "errors", "message", "detail", "error_description"):
        if isinstance(document, list) and document:
            document = document[0]
        if isinstance(document, dict) and key in document:
            found = document[key]
            if isinstance(found, str):
                return " ".join(found.split())[:_MESSAGE_CHARACTERS]
            document = found
    if isinstance(document, dict) and isinstance(document.get("message"), str):
        return " ".join(document["message"].split())[:_MESSAGE_CHARACTERS]
    return None
