"""Penstock's own receiver as the http sink sees it.

`penstock serve` keeps the chain: which slice of this pipeline it holds, and which one is open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused, StreamStopped
from penstock.links.http import protocol
from penstock.links.http.failures import Answer
from penstock.links.http.sending import Request, Sender
from penstock.ports import Held, Origin, no_origin, no_position
from penstock.sinks.http.chunks import Chunk
from penstock.sinks.http.receiver import Batch, Conflict, Refused, Standing, content_headers, refuse

#: characters of a cursor that the receiver shows
_MOST_CURSOR = 1000
#: what to do about an answer, by its status
_STEPS = {
    403: "give the token the scope `ingest` for this stream; then run again",
    404: "create the stream at the receiver, or correct `into`; then run again",
    413: "raise the receiver's limit for a request above this chunk, and run again: a sealed slice keeps its "
    "chunks. For later slices lower `chunk_bytes`. `refused: quarantine` puts such chunks into quarantine",
    415: "set `format` and `compression` of the sink to what the receiver takes. A sealed slice keeps its chunks",
    422: "correct the row at the source or the stream's schema at the receiver, then run again; or set "
    "`refused: quarantine`",
}


def bounds_of(position: Position, rows: int, bytes_: int) -> Document:
    """What a receiver keeps for a sender that has lost its store."""
    about: dict[str, Any] = {
        "number": position.number,
        "id": position.id,
        "mark": position.mark.text if position.mark else None,
        "content": position.content,
    }
    return {"position": about, "rows": rows, "bytes": bytes_}


def held_of(bounds: Mapping[str, Any]) -> Held:
    """The reverse; KeyError, TypeError or ValueError if they are not penstock's."""
    about = bounds["position"]
    mark = Mark(str(about["mark"])) if about["mark"] is not None else None
    position = Position(int(about["number"]), str(about["id"]), mark, str(about["content"]))
    return Held(position, int(bounds["rows"]), int(bounds["bytes"]))


@dataclass(frozen=True)
class PenstockReceiver:
    """A receiver that `penstock serve` started."""

    sender: Sender
    pipeline: str
    #: the receiver's stream of each stream of the pipeline that has another name there
    into: Mapping[str, str]
    origin: Callable[[Slice], Origin] = no_origin
    #: where the store has a stream
    last_position: Callable[[str], Position | None] = no_position

    def target(self, stream: str) -> str:
        return self.into.get(stream, stream)

    def describe(self, stream: str) -> str:
        return f"stream {self.target(stream)} of the receiver {self.sender.options.host}"

    def connect(self) -> None:
        request = Request("", "GET", "/readyz")
        answer = self.sender.deliver(request, lambda _: None, patient=False)
        if answer.status >= 300:
            raise ConnectionFailed(
                f"{self.sender.options.host} is not a penstock receiver that is ready: {self.sender.show(answer)}",
                next_step="correct `url` of the sink, or set `protocol: plain` for a receiver of another kind",
            )

    def held(self, stream: str) -> Held | None:
        last = self._ask(stream)["last"]
        if last is None:
            return None
        try:
            held = held_of(protocol.decode_bounds(last["bounds"]))
            if (held.position.id, held.position.number) != (last["slice"], last["number"]):
                raise ValueError("they are of another slice")
        except (KeyError, TypeError, ValueError) as wrong:
            raise StreamStopped(
                f"the receiver holds slice {last['number']} ({str(last['slice'])[:12]}) of this pipeline, and its "
                f"bounds cannot be read ({wrong}): another program has sent it under the name {self.pipeline!r}, or "
                "the receiver's log is damaged",
                next_step="give this pipeline another name, or restore the receiver's log; `state recover` cannot go "
                "on from a slice without its bounds",
                stream=stream,
            ) from None
        return held

    def standing(self, stream: str) -> Standing:
        found = self._ask(stream)
        last, opened = found["last"], found["open"]
        if opened is None:
            return Standing(last["slice"] if last else "")
        return Standing(last["slice"] if last else "", opened["slice"], opened["held"])

    def send(self, slice_: Slice, chunk: Chunk, chunks: int, bounds: Document) -> None:
        sent = protocol.SentChunk(
            producer=self.pipeline,
            slice=slice_.id,
            number=slice_.number,
            predecessor=slice_.previous,
            chunk=chunk.number,
            chunks=chunks,
            rows=chunk.rows,
            digest=chunk.digest,
            bounds=protocol.encode_bounds(bounds) if chunk.number == 1 else "",
        )
        headers = sent.headers() | content_headers(chunk.media_type, chunk.compression)
        if chunk.number == chunks and (meta := self._meta(slice_, int(str(bounds["rows"])))):
            headers[protocol.META] = protocol.encode_meta(meta)
        path = self._path(slice_.stream, slice_.content)
        request = Request(slice_.stream, "POST", path, headers, chunk.read()[1])
        answer = self.sender.deliver(request, lambda answer: _check_taken(answer, sent))
        if answer.status == 409:
            raise Conflict(self.sender.show(answer))
        if answer.status >= 300:
            raise refuse(self.sender, answer, slice_, chunk, chunks, _STEPS)

    def _path(self, stream: str, content: str | None) -> str:
        is_ops = content is not None and Content.parse(content).entities is not None
        return protocol.batches_path(self.target(stream), ops=is_ops)

    def _meta(self, slice_: Slice, rows: int) -> dict[str, Any]:
        """How far the source is read once the slice is whole, and what is left there then."""
        origin = self.origin(slice_)
        left = {"lag_rows": max(0, origin.rows_left - rows)} if origin.rows_left is not None else {}
        return left | ({"cursor": origin.cursor[:_MOST_CURSOR]} if origin.cursor else {})

    def finish(self, slice_: Slice, rows: int, bytes_: int) -> None:
        """Nothing: the receiver knows."""

    def replay(self, stream: str, batch: Batch) -> None:
        headers = {protocol.KEY: batch.key, **content_headers(batch.media_type, batch.compression)}
        last = self.last_position(stream)
        path = self._path(stream, last.content if last else None)
        answer = self.sender.deliver(
            Request(stream, "POST", path, headers, batch.body), lambda answer: _check_rows(answer, batch.rows)
        )
        if answer.status >= 300:
            said = self.sender.show(answer)
            error = StreamFailed(
                f"the receiver does not take rows of the quarantine: {said}",
                next_step=_STEPS.get(answer.status, "correct what the receiver says, then replay again"),
                stream=stream,
            )
            raise Refused(answer.status, said, error)

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        path = protocol.slice_path(self.target(stream), self.pipeline, slice_id)
        answer = self.sender.deliver(Request(stream, "DELETE", path), _document)
        if answer.status >= 300:
            raise StreamFailed(
                f"the receiver does not withdraw slice {slice_id[:12]}: {self.sender.show(answer)}",
                next_step="look at what the receiver holds, then `penstock state recover FILE` again",
                stream=stream,
            )
        found = _document(answer)
        if not found.get("withdrawn"):
            return [f"the receiver holds nothing of slice {slice_id[:12]}"]
        return [f"the receiver has withdrawn slice {slice_id[:12]} ({found.get('chunks', 0)} chunks)"]

    def _ask(self, stream: str) -> Mapping[str, Any]:
        """What the receiver holds of this pipeline: `last` and `open`."""
        path = protocol.producer_path(self.target(stream), self.pipeline)
        answer = self.sender.deliver(Request(stream, "GET", path), _check_producer)
        if answer.status >= 300:
            raise refusal_to_tell(self.sender, answer, self.describe(stream), stream)
        return _document(answer)


# ---------------------------------------------------------------- reading answers


def _document(answer: Answer) -> dict[str, Any]:
    found = json.loads(answer.body)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _check_taken(answer: Answer, sent: protocol.SentChunk) -> None:
    """ValueError unless it acknowledges this very chunk."""
    found = _document(answer)
    said = (found.get("slice"), found.get("chunk"), found.get("chunks"), found.get("rows"))
    if said != (sent.slice, sent.chunk, sent.chunks, sent.rows):
        raise ValueError("it acknowledges another chunk")


def _check_rows(answer: Answer, rows: int) -> None:
    if _document(answer).get("rows") != rows:
        raise ValueError("it acknowledges another number of rows")


def _check_producer(answer: Answer) -> None:
    found = _document(answer)
    for name, count in (("last", "number"), ("open", "held")):
        each = found.get(name, "")
        if each is None:
            continue
        if not isinstance(each, dict) or not isinstance(each.get("slice"), str) or not isinstance(each.get(count), int):
            raise ValueError(f"{name!r} is missing or malformed")


def refusal_to_tell(sender: Sender, answer: Answer, where: str, stream: str) -> PenstockError:
    """Why a receiver does not say what it holds."""
    said = f"{where}: {sender.show(answer)}"
    if answer.status == 401:
        return ConnectionFailed(
            f"the receiver does not accept the credentials: {said}", next_step="correct `auth` of the sink"
        )
    return StreamRefused(
        said,
        next_step="create the stream at the receiver or correct `into`; give the token the scope `ingest` for it",
        stream=stream,
    )
