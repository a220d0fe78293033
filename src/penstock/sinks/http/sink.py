"""The http sink: a slice's chunks are staged, sealed by penstock, and sent in order until the receiver has them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Receipt, Slice
from penstock.errors import CommitUnclear, InputError, StreamStopped, refuse_all
from penstock.links.http import protocol
from penstock.links.http.sending import Sender
from penstock.links.pause import refuse_cancelled
from penstock.ports import Context, Held, Remark, StreamInfo
from penstock.sinks.http.check import find_problems
from penstock.sinks.http.chunks import Chunk, ChunkShape, ChunkWriter, is_whole, list_chunks
from penstock.sinks.http.explain import explain_stream
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.progress import Progress
from penstock.sinks.http.receiver import Conflict, PenstockReceiver, Receiver, bounds_of


class HttpSink:
    """Sends to a receiver of any kind."""

    def __init__(
        self,
        options: Options,
        streams: Mapping[str, StreamOptions],
        context: Context,
        sender: Sender,
        receiver: Receiver,
        shape: ChunkShape,
    ) -> None:
        self.options, self.streams, self.context = options, streams, context
        self.sender, self.receiver, self.shape = sender, receiver, shape

    def connect(self) -> None:
        self.receiver.connect()

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

    def check(self, stream: StreamInfo, content: Content) -> None:
        refuse_all(find_problems(stream, content, self.options, self._options_of(stream.name)))

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        return explain_stream(self.receiver.describe(stream.name), stream, content, self.options)

    def held(self, stream: str) -> Held | None:
        return self.receiver.held(stream)

    def writer(self, slice_: Slice, attempt: str) -> ChunkWriter:
        folder = self.context.spools.stage(slice_.stream, slice_.number, attempt)
        return ChunkWriter(folder, attempt, self.shape, self.context.probe)

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        folder = self.context.spools.find_staged(slice_.stream, slice_.number, attempt)
        chunks = list_chunks(slice_, folder, receipts, self.options.format)
        bounds = bounds_of(slice_.position, sum(r.rows for r in receipts), sum(r.bytes for r in receipts))
        standing = self.receiver.standing(slice_.stream)
        if standing.last != slice_.previous or standing.open not in (None, slice_.id):
            raise CommitUnclear(
                f"the receiver does not hold the slice before slice {slice_.number}, or has another one open",
                next_step="ask the receiver",
                stream=slice_.stream,
            )
        progress = Progress(folder)
        # What the receiver has and nobody remembers here is sent again: it must be the same, and is known by its key.
        known = min(progress.acknowledged(), standing.open_chunks if standing.open else 0)
        for chunk in chunks[known:]:
            refuse_cancelled(self.context.is_cancelled)
            try:
                self.receiver.send(slice_, chunk, len(chunks), bounds)
            except Conflict as conflict:
                raise self._explain_conflict(slice_, chunk, conflict) from None
            if receipts:
                progress.note(chunk.number)
            self.context.report(slice_.stream, "sending chunks", done=chunk.number, total=len(chunks))
            self.context.probe.at("http.chunk_sent", number=slice_.number, chunk=chunk.number)
        return None

    def _explain_conflict(self, slice_: Slice, chunk: Chunk, conflict: Conflict) -> CommitUnclear | StreamStopped:
        """Other contents of this very slice stop the stream; anything else the engine decides by what is held."""
        standing = self.receiver.standing(slice_.stream)
        if standing.open == slice_.id and standing.open_chunks >= chunk.number:
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

    def _options_of(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()


class PenstockHttpSink(HttpSink):
    """Sends to penstock's receiver, which knows the open slice and can withdraw it."""

    receiver: PenstockReceiver

    def open_slice(self, stream: str) -> str | None:
        return self.receiver.standing(stream).open

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        return self.receiver.withdraw(stream, slice_id)
