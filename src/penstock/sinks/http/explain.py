"""Explain what holds for a stream that is sent over HTTP, and what does not."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.content import Content
from penstock.core.slices import Kind
from penstock.ports import Remark, StreamInfo
from penstock.sinks.http.options import Options


def explain_stream(where: str, stream: StreamInfo, content: Content, options: Options) -> Sequence[Remark]:
    if options.protocol == "penstock":
        remarks = [
            Remark("guarantee", f"lands in {where}: each slice once, in order; it is readable with its last chunk"),
        ]
    else:
        remarks = [
            Remark(
                "guarantee",
                f"lands in {where}: requests are sent in order, each with its own key; one that is sent again has the "
                "same key and the same bytes",
            ),
            Remark(
                "gap",
                f"exactly once only if the receiver leaves out a key that it has seen (`{options.key_header}`), keeps "
                "keys for longer than an outage lasts, and is not restored from an older copy; and while neither the "
                "store nor the pipeline's spools are lost",
            ),
            Remark("gap", "readers of the receiver see a slice request by request, not at once"),
        ]
    if options.refused == "quarantine" or options.oversized == "quarantine":
        remarks.append(
            Remark(
                "gap", "rows that go into quarantine are missing at the receiver until they are replayed, out of order"
            )
        )
    if stream.kind is Kind.REFRESH:
        remarks.append(Remark("gap", "a full refresh is refused: the receiver appends, and older rows would stay"))
    if content.changes:
        remarks.append(Remark("gap", "a delete is a row whose `_change` is `delete`: the receiver must apply it"))
    elif stream.kind is Kind.ROWS:
        remarks.append(Remark("gap", "an updated row is sent again: the receiver keeps the older version beside it"))
    if stream.kind is Kind.ROWS and not stream.primary_key:
        remarks.append(Remark("advice", "the stream has no primary key by which readers could tell versions of a row"))
    return remarks
