"""A receiver of another kind: it knows requests by their keys at best, so what it was sent is remembered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from penstock.core.documents import Document
from penstock.core.marks import Position
from penstock.core.slices import Slice
from penstock.errors import CommitUnclear, StreamFailed, StreamStopped
from penstock.links.http import protocol
from penstock.links.http.failures import Answer
from penstock.links.http.sending import Request, Sender
from penstock.ports import Held
from penstock.sinks.http.chunks import Chunk
from penstock.sinks.http.memory import Memory
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.receiver import Batch, Refused, Standing, content_headers, refuse
from penstock.sinks.http.template import columns_of, fill_header, fill_path

#: answers that a receiver of keys gives while it still works on the same key
_STILL_AT_IT = frozenset({409})
_CHUNKED = "run again: a sealed slice keeps its requests. For later slices lower `chunk_rows` or `chunk_bytes`"
#: what to do about an answer, by its status
_STEPS = {
    403: "give the credentials the right to send here; then run again",
    404: "correct `url` or `into`; then run again",
    405: "set `method` of the sink to what the receiver takes; then run again",
    413: f"raise the receiver's limit for a request and {_CHUNKED}. With `refused: quarantine` such rows go into "
    "quarantine",
    415: "set `format` and `compression` of the sink to what the receiver takes. A sealed slice keeps its requests",
    422: "correct the row at the source or the stream's templates, then run again; or set `refused: quarantine`",
}


@dataclass(frozen=True)
class PlainReceiver:
    """Any receiver; what it holds is what this side remembers to have sent."""

    sender: Sender
    options: Options
    streams: Mapping[str, StreamOptions]
    memory: Memory
    #: where the store has a stream
    last: Callable[[str], Position | None]

    def describe(self, stream: str) -> str:
        return f"{self.sender.options.host}{self._path(stream)}"

    def connect(self) -> None:
        self.sender.reach()

    def held(self, stream: str) -> Held | None:
        held = self.memory.last_sent(stream)
        if held is None and (last := self.last(stream)) is not None:
            raise StreamStopped(
                f"the record of what was sent to {self.describe(stream)} is missing, and the store has delivered slice "
                f"{last.number}: the pipeline's spools were deleted or are another folder, or the stream went "
                "elsewhere before",
                next_step="put the folder of the spools back; or `penstock state recover FILE --stream "
                f"{stream}` goes on after slice {last.number}, as the store says",
                safe="Nothing was sent.",
                stream=stream,
            )
        return held

    def recover(self, stream: str) -> list[str]:
        """Take over the store's place where the record is missing."""
        last = self.last(stream)
        if last is None or self.memory.last_sent(stream) is not None:
            return []
        self.memory.adopt(stream, last)
        return [f"the record of what was sent was missing: it goes on after slice {last.number}, as the store says"]

    def standing(self, stream: str) -> Standing:
        held = self.memory.last_sent(stream)
        return Standing(held.position.id if held else "", None, None)

    def send(self, slice_: Slice, chunk: Chunk, chunks: int, bounds: Document) -> None:
        if not chunk.rows:
            return  # it has nothing to say to a receiver that keeps no chain
        head, body = chunk.read()
        headers = {
            self.options.key_header: protocol.chunk_key(slice_.id, chunk.number),
            protocol.NUMBER: str(slice_.number),
            protocol.CHUNK: f"{chunk.number}/{chunks}",
            protocol.ROWS: str(chunk.rows),
            **content_headers(chunk.media_type, chunk.compression),
        }
        answer = self._ask(slice_.stream, headers, head, body)
        if not self._is_success(answer):
            raise refuse(self.sender, answer, slice_, chunk, chunks, _STEPS)

    def finish(self, slice_: Slice, rows: int, bytes_: int) -> None:
        if not self.memory.note_sent(slice_, rows, bytes_):
            raise CommitUnclear(
                f"another process has finished another slice than {slice_.number} meanwhile",
                next_step="compare the store with the record of what was sent",
                stream=slice_.stream,
            )

    def replay(self, stream: str, batch: Batch) -> None:
        headers = {self.options.key_header: batch.key, **content_headers(batch.media_type, batch.compression)}
        answer = self._ask(stream, headers, batch.head, batch.body)
        if not self._is_success(answer):
            said = self.sender.show(answer)
            step = _STEPS.get(answer.status, "correct what the receiver says, then replay again")
            error = StreamFailed(f"the receiver does not take rows of the quarantine: {said}", next_step=step)
            raise Refused(answer.status, said, error)

    def _ask(self, stream: str, headers: Mapping[str, str], head: Document, body: bytes) -> Answer:
        if head:
            own, path = cast("dict[str, str]", head["headers"]), str(head["path"])
        else:
            own = {name: fill_header(text, {}) for name, text in self._options_of(stream).headers.items()}
            path = self._path(stream)
        again = _STILL_AT_IT - set(self.options.success)
        request = Request(stream, self.options.method, path, {**own, **headers}, body, again)
        return self.sender.deliver(request, lambda _: None)

    def _is_success(self, answer: Answer) -> bool:
        return answer.status in self.options.success if self.options.success else 200 <= answer.status < 300

    def _path(self, stream: str) -> str:
        into = self._options_of(stream).into or ""
        path = into if columns_of(into) else fill_path(into, {})
        return path if not path or path.startswith("/") else f"/{path}"

    def _options_of(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()
