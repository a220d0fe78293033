"""The shape of a stream's requests, from the options of the sink and of the stream."""

from __future__ import annotations

from penstock.core.content import Content
from penstock.sinks.http.chunks import ChunkShape
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.template import Value, columns_of, compile_row, split_body

#: the column that holds a document of ops
DOCUMENT = "document"


def shape_of(options: Options, stream: StreamOptions, content: Content | None = None) -> ChunkShape:
    """BadTemplate if a template cannot be read. To penstock's receiver a document of ops goes as it is."""
    is_document = content is not None and content.entities is not None and options.protocol == "penstock"
    row = compile_row(stream.row) if stream.row is not None else [Value(DOCUMENT)] if is_document else None
    before, after = split_body(stream.body) if stream.body is not None else ("", "")
    texts = [stream.into or "", *stream.headers.values()] if options.format == "object" else []
    has_head = any(columns_of(text) for text in texts)
    into = stream.into or ""
    return ChunkShape(
        format=options.format,
        compression=options.compression,
        level=options.level,
        chunk_rows=1 if options.format == "object" else options.chunk_rows,
        chunk_bytes=options.chunk_bytes,
        decimals=options.decimals,
        non_finite=options.non_finite,
        quarantines=options.oversized == "quarantine",
        row=tuple(row) if row is not None else None,
        before=before,
        after=after,
        path=(into if not into or into.startswith("/") else f"/{into}") if has_head else "",
        headers=tuple(stream.headers.items()) if has_head else (),
    )
