"""The http sink: a slice's chunks are staged, sealed by penstock, and sent in order until the receiver has them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Receipt, Slice
from penstock.errors import CommitUnclear, InputError, StreamStopped, refuse_all
from penstock.links.http import protocol
from penstock.links.http.sending import Sender
from penstock.links.pause import refuse_cancelled
from penstock.ports import Context, Held, Quarantined, Remark, StreamInfo
from penstock.sinks.http.check import find_problems
from penstock.sinks.http.chunks import (
    Chunk,
    ChunkShape,
    ChunkWriter,
    OversizedRow,
    is_whole,
    list_chunks,
    read_oversized,
)
from penstock.sinks.http.explain import explain_stream
from penstock.sinks.http.memory import NO_CHUNK, Memory
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.penstock import PenstockReceiver, bounds_of
from penstock.sinks.http.plain import PlainReceiver
from penstock.sinks.http.progress import Progress
from penstock.sinks.http.receiver import Conflict, Receiver, Refused
from penstock.sinks.http.replaying import batches_to_replay
from penstock.sinks.http.shape import shape_of


class HttpSink:
    """Sends to a receiver of any kind."""

    def __init__(
        self,
        options: Options,
        streams: Mapping[str, StreamOptions],
        context: Context,
        sender: Sender,
        receiver: Receiver,
        memory: Memory,
    ) -> None:
        self.options, self.streams, self.context = options, streams, context
        self.sender, self.receiver, self.memory = sender, receiver, memory

    def connect(self) -> None:
        self.receiver.connect()

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        return {}

    def check(self, stream: StreamInfo, content: Content) -> None:
        refuse_all(find_problems(stream, content, self.options, self._options_of(stream.name)))

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        return explain_stream(self.receiver.describe(stream.name), stream, content, self.options)

    def held(self, stream: str) -> Held | None:
        held = self.receiver.held(stream)
        return replace(held, outcome=self._outcome_of(stream, held.position, held.rows)) if held else None

    def writer(self, slice_: Slice, attempt: str) -> ChunkWriter:
        folder = self.context.spools.stage(slice_.stream, slice_.number, attempt)
        shape = shape_of(self.options, self._options_of(slice_.stream), Content.parse(slice_.content))
        return ChunkWriter(folder, attempt, shape, self.context.probe)

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        folder = self.context.spools.find_staged(slice_.stream, slice_.number, attempt)
        chunks = list_chunks(slice_, folder, receipts, self.options.format)
        rows, bytes_ = sum(r.rows for r in receipts), sum(r.bytes for r in receipts)
        bounds = bounds_of(slice_.position, rows, bytes_)
        standing = self.receiver.standing(slice_.stream)
        if standing.last != slice_.previous or standing.open not in (None, slice_.id):
            raise CommitUnclear(
                f"the receiver does not hold the slice before slice {slice_.number}, or has another one open",
                next_step="ask the receiver",
                stream=slice_.stream,
            )
        self._keep_oversized(slice_, read_oversized(folder, receipts))
        emptied = self.memory.emptied(slice_.stream, slice_.id)
        progress = Progress(folder)
        # What the receiver has and nobody remembers here is sent again: it must be the same, and is known by its key.
        held = standing.open_chunks if standing.open or standing.open_chunks is None else 0
        known = progress.acknowledged() if held is None else min(progress.acknowledged(), held)
        for chunk in chunks[known:]:
            refuse_cancelled(self.context.is_cancelled)
            self._send(slice_, chunk.emptied() if chunk.number in emptied else chunk, len(chunks), bounds)
            if receipts:
                progress.note(chunk.number)
            self.context.report(slice_.stream, "sending chunks", done=chunk.number, total=len(chunks))
            self.context.probe.at("http.chunk_sent", number=slice_.number, chunk=chunk.number)
        self.receiver.finish(slice_, rows, bytes_)
        return self._outcome_of(slice_.stream, slice_.position, rows)

    def _send(self, slice_: Slice, chunk: Chunk, chunks: int, bounds: Document) -> None:
        """Send a chunk; if it is refused for its content and the options say so, an empty one takes its number."""
        try:
            self.receiver.send(slice_, chunk, chunks, bounds)
        except Conflict as conflict:
            raise self._explain_conflict(slice_, chunk, conflict) from None
        except Refused as refused:
            if self.options.refused != "quarantine" or not refused.is_for_content or not chunk.rows:
                raise refused.error from None
            head, body = chunk.read()
            rows = [(row, canonical(head) if head else "") for row in chunk.rows_of(body)]
            # Recorded before it is sent: a process that finds the record sends the empty chunk too.
            self.memory.quarantine(slice_, chunk.number, rows, code=str(refused.status), reason=refused.said)
            self.context.probe.at("http.chunk_quarantined", number=slice_.number, chunk=chunk.number)
            self._send(slice_, chunk.emptied(), chunks, bounds)

    def _keep_oversized(self, slice_: Slice, rows: Sequence[OversizedRow]) -> None:
        if rows:
            reason = f"larger than a request may be (`chunk_bytes`: {self.options.chunk_bytes} bytes)"
            self.memory.quarantine(slice_, NO_CHUNK, rows, code="oversized", reason=reason)

    def _outcome_of(self, stream: str, position: Position, rows: int) -> Outcome | None:
        """What became of a slice's rows, if some are in quarantine."""
        quarantined = min(self.memory.count_of(stream, position.id), rows)
        return Outcome(created=rows - quarantined, quarantined=quarantined) if quarantined else None

    def _explain_conflict(self, slice_: Slice, chunk: Chunk, conflict: Conflict) -> CommitUnclear | StreamStopped:
        """Other contents of this very slice stop the stream; anything else the engine decides by what is held."""
        standing = self.receiver.standing(slice_.stream)
        if standing.open == slice_.id and (standing.open_chunks or 0) >= chunk.number:
            return StreamStopped(
                f"the receiver has chunk {chunk.number} of slice {slice_.number} with other contents: "
                f"{conflict.said}. Another process has sent this slice from a spool of its own",
                next_step="stop the other process; then `penstock state recover FILE` finishes or withdraws the slice",
                stream=slice_.stream,
            )
        return CommitUnclear(
            f"the receiver did not take chunk {chunk.number} of slice {slice_.number}: {conflict.said}",
            next_step="ask the receiver",
            stream=slice_.stream,
        )

    def sweep(self, stream: str, held: Position) -> None:
        self.context.spools.sweep(stream, held.number)
        self.memory.sweep(stream, held)

    def close(self) -> None:
        self.sender.close()

    # ------------------------------------------------------------ sealing

    def is_staged(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> bool:
        folder = self.context.spools.find_staged(slice_.stream, slice_.number, attempt)
        return all(is_whole(folder, receipt.pieces) for receipt in receipts)

    def describe_pieces(self, slice_: Slice, receipts: Sequence[Receipt]) -> Sequence[str]:
        chunks = list_chunks(slice_, "", receipts, self.options.format)
        where = self.receiver.describe(slice_.stream)
        return [
            f"{where}: chunk {chunk.number} of {len(chunks)} of slice {slice_.number} ({chunk.rows} rows, key "
            f"{protocol.chunk_key(slice_.id, chunk.number)})"
            for chunk in chunks
        ]

    # ------------------------------------------------------------ the quarantine

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        return self.memory.count_rows(streams), self.memory.list_rows(streams, limit)

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        """Send rows again, in one request for each chunk that they were in. `overwrite` means nothing here."""
        sent = refused = 0
        shape = self._shape_of(stream)
        for rows, batch in batches_to_replay(self.memory.rows_of(stream, ids), shape):
            ids_of = [row.id for row in rows]
            try:
                self.receiver.replay(stream, batch)
            except Refused as reason:
                if not reason.is_for_content:
                    raise reason.error from None
                self.memory.refuse_again(ids_of, str(reason.status), reason.said)
                refused += len(rows)
            else:
                self.memory.drop([stream], ids_of)
                sent += len(rows)
        return Outcome(created=sent, quarantined=refused)

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        return self.memory.drop(streams, ids)

    # ------------------------------------------------------------ options

    def _shape_of(self, stream: str) -> ChunkShape:
        return shape_of(self.options, self._options_of(stream))

    def _options_of(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()


class PenstockHttpSink(HttpSink):
    """Sends to penstock's receiver, which knows the open slice and can withdraw it."""

    receiver: PenstockReceiver

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        targets = defaultdict(list)
        for info in streams:
            targets[self.receiver.describe(info.name)].append(info.name)
        for target, names in targets.items():
            if len(names) > 1:
                raise InputError(
                    f"the streams {' and '.join(map(repr, names))} would both land in {target}, which keeps one chain "
                    "for each pipeline",
                    next_step="set another `into` for one of them, or send them from two pipelines",
                    pipeline=self.context.pipeline,
                )
        return {}

    def open_slice(self, stream: str) -> str | None:
        return self.receiver.standing(stream).open

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        return self.receiver.withdraw(stream, slice_id)


class PlainHttpSink(HttpSink):
    """Sends to any other receiver; what it was sent is remembered here."""

    receiver: PlainReceiver

    def recover(self, stream: str) -> Sequence[str]:
        return self.receiver.recover(stream)
