"""What a sink asks of the side that takes its chunks, and what it says when that side refuses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.core.documents import Document
from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed
from penstock.links.http.failures import Answer
from penstock.links.http.sending import Sender
from penstock.ports import Held
from penstock.sinks.http.chunks import Chunk


@dataclass(frozen=True, slots=True)
class Standing:
    """What the receiver has of a stream."""

    #: the id of its last whole slice; "": none
    last: str = ""
    #: the id of the slice that is open; None: none
    open: str | None = None
    #: chunks that it holds of the open slice; None: nobody knows but the sender
    open_chunks: int | None = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows outside of any slice."""

    key: str
    rows: int
    body: bytes
    media_type: str
    #: "": not compressed
    compression: str
    #: the path and headers of this request alone
    head: Document


class Conflict(Exception):
    """The receiver does not take a chunk, because it holds something else (409)."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class Refused(Exception):
    """The receiver does not take a chunk, and a retry would not help."""

    def __init__(self, status: int, said: str, error: PenstockError) -> None:
        super().__init__(said)
        self.status, self.said = status, said
        #: what stops the stream
        self.error = error

    @property
    def is_for_content(self) -> bool:
        """Whether other rows might be taken."""
        return self.status in (400, 413, 422)


class Receiver(Protocol):
    """Takes the chunks of slices in order, and knows what it has taken."""

    def connect(self) -> None: ...

    def held(self, stream: str) -> Held | None:
        """The last whole slice."""
        ...

    def standing(self, stream: str) -> Standing:
        """What it has now."""
        ...

    def send(self, slice_: Slice, chunk: Chunk, chunks: int, bounds: Document) -> None:
        """Return once the chunk is acknowledged. Conflict if it contradicts what is held, Refused if it is refused."""
        ...

    def finish(self, slice_: Slice, rows: int, bytes_: int) -> None:
        """Every chunk is acknowledged. CommitUnclear if another slice was finished meanwhile."""
        ...

    def replay(self, stream: str, batch: Batch) -> None:
        """Send rows that were in quarantine, outside of any slice. Refused if they are not taken."""
        ...

    def describe(self, stream: str) -> str:
        """Where a stream lands."""
        ...


def refuse(
    sender: Sender, answer: Answer, slice_: Slice, chunk: Chunk, chunks: int, steps: Mapping[int, str]
) -> Refused:
    """Why a receiver does not take a chunk, where a retry would not help."""
    said = sender.show(answer)
    if answer.status == 401:
        error: PenstockError = ConnectionFailed(
            f"the receiver does not accept the credentials: {said}", next_step="correct `auth` of the sink"
        )
    else:
        error = StreamFailed(
            f"the receiver refused chunk {chunk.number} of {chunks} of slice {slice_.number}: {said}",
            next_step=steps.get(answer.status, "correct what the receiver says, then run again"),
            stream=slice_.stream,
        )
    return Refused(answer.status, said, error)


def content_headers(media_type: str, compression: str) -> dict[str, str]:
    encoding = {"Content-Encoding": compression} if compression else {}
    return {"Content-Type": media_type, "Accept": "application/json", **encoding}
