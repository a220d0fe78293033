"""Check, before a slice is planned, whether a stream can be sent. Does not import Arrow."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.names import suggest
from penstock.core.slices import Kind
from penstock.core.types import List, Map, Plain, Struct
from penstock.errors import StreamRefused
from penstock.links.http import protocol
from penstock.ports import StreamInfo
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.penstock import bounds_of
from penstock.sinks.http.shape import shape_of
from penstock.sinks.http.template import BadTemplate, Inner, columns_of, compile_row

#: characters that a mark is assumed to have at most
_MARK_CHARACTERS = 4096
#: the column that says whether a row is a delete
CHANGE = "_change"


def find_problems(
    stream: StreamInfo, content: Content, options: Options, stream_options: StreamOptions
) -> Iterator[StreamRefused]:
    """Everything that prevents the stream from being sent."""
    if stream.kind is Kind.REFRESH:
        yield StreamRefused(
            "a full refresh cannot be sent over HTTP: the receiver appends rows, and those of the refresh before would "
            "stay beside them",
            next_step="give the stream a cursor, or leave it out of this pipeline",
            stream=stream.name,
        )
    if content.changes and stream_options.deletes == "refuse":
        yield StreamRefused(
            "the stream may contain deletes, and `deletes: refuse` is set",
            next_step="set `deletes: include`, and let the receiver read `_change`; or send a stream without deletes",
            stream=stream.name,
        )
    if options.auth is not None and (kinds := options.auth.contradictions()):
        yield StreamRefused(
            f"`auth` of the sink has {' and '.join(kinds)}, which would set the same header",
            next_step="keep one of them",
            stream=stream.name,
        )
    if options.protocol == "penstock" and (others := _for_others(options)):
        yield StreamRefused(
            f"`{others[0]}` of the sink is for `protocol: plain`; penstock's receiver has its own protocol",
            next_step=f"remove `{others[0]}`, or set `protocol: plain`",
            stream=stream.name,
        )
    yield from _find_template_problems(stream.name, content, options, stream_options)
    if options.protocol == "penstock" and not _fits(content):
        yield StreamRefused(
            f"the stream's columns do not fit into the {protocol.MOST_BOUNDS} characters of the header by which the "
            "receiver remembers the slice",
            next_step="select fewer columns, or send them as one column of JSON",
            stream=stream.name,
        )


def _for_others(options: Options) -> list[str]:
    """Options that penstock's receiver has no use for."""
    ours = {"method": "POST", "success": (), "key_header": protocol.KEY}
    wrong = [name for name, value in ours.items() if getattr(options, name) != value]
    return [*wrong, "format: object"] if options.format == "object" else wrong


def _find_template_problems(
    stream: str, content: Content, options: Options, chosen: StreamOptions
) -> Iterator[StreamRefused]:
    """Templates that cannot be read, that name a column the stream does not have, or that lose deletes."""
    is_plain, is_object = options.protocol == "plain", options.format == "object"
    if not is_plain and chosen.row is not None and content.entities is not None:
        yield _refuse(stream, "`row` is a template, and penstock's receiver takes documents of ops as they are")
        return
    if not is_plain and (chosen.body is not None or chosen.headers):
        name = "body" if chosen.body is not None else "headers"
        yield _refuse(stream, f"`{name}` is for `protocol: plain`; penstock's receiver has its own protocol")
        return
    if chosen.body is not None and options.format != "json":
        yield _refuse(
            stream, f"`body` is a template around an array of rows, and the sink has `format: {options.format}`"
        )
    try:
        shape_of(options, chosen)
        row = list((chosen.row and compile_row(chosen.row)) or ())
        texts = {"into": chosen.into or "", **{f"headers.{name}": text for name, text in chosen.headers.items()}}
        named = {name: columns_of(text) for name, text in texts.items()} if is_plain else {}
    except BadTemplate as wrong:
        yield _refuse(stream, str(wrong))
        return
    types = {column.name: column.type for column in content.columns}
    names = [*types, CHANGE] if content.changes else [*types]
    for name, columns in named.items():
        if columns and not is_object:
            yield _refuse(stream, f"`{name}` names {{{columns[0]}}}, and a request has many rows; set `format: object`")
    every = dict.fromkeys((piece.column for piece in row if not isinstance(piece, str)), "row")
    every |= {column: name for name, columns in named.items() for column in columns}
    for column, name in every.items():
        if column not in names:
            yield _refuse(
                stream, f"`{name}` names {{{column}}}, which is no column of it; {suggest(column, names, 'columns')}"
            )
    for piece in row:
        if isinstance(piece, Inner) and isinstance(types.get(piece.column), (List, Map, Struct)):
            yield _refuse(stream, f"`row` has {{{piece.column}}} inside a text, and it is a {types[piece.column]}")
        elif isinstance(piece, Inner) and types.get(piece.column) is Plain.JSON:
            yield _refuse(stream, f"`row` has {{{piece.column}}} inside a text, and it is a document of JSON")
    if content.changes and chosen.row is not None and chosen.deletes == "include" and CHANGE not in every:
        yield _refuse(stream, f"`row` does not name {{{CHANGE}}}, so that a delete would look like an upsert")


def _refuse(stream: str, what: str) -> StreamRefused:
    return StreamRefused(what, next_step="correct the stream's templates; a placeholder is `{column}`", stream=stream)


def _fits(content: Content) -> bool:
    """Whether the bounds of a slice with this content can be sent."""
    mark = Mark("x" * _MARK_CHARACTERS)
    try:
        protocol.encode_bounds(bounds_of(Position(1, "0" * 64, mark, content.text), 0, 0))
    except ValueError:
        return False
    return True
