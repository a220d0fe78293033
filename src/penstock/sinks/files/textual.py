"""Which types a text format can hold exactly. Does not import Arrow: it is asked before a slice is planned."""

from __future__ import annotations

from penstock.core.types import Fixed, List, Map, Plain, Struct, Type


def refusal(name: str, type_: Type, format_: str) -> tuple[str, str] | None:
    """Why a format cannot hold a column, and what to do; None: it can."""
    if format_ == "parquet" or _fits(type_, format_):
        return None
    step = "use format: parquet, or leave the column out with `columns`"
    if isinstance(type_, List) and _fits(type_, "ndjson"):
        step = (
            "use format: parquet or ndjson, let the source send it as text (`arrays: text` of a postgres stream), "
            "or leave the column out with `columns`"
        )
    return f"column {name!r} is {type_}, which {format_} cannot hold exactly", step


def _fits(type_: Type, format_: str) -> bool:
    match type_:
        case List():
            return format_ == "ndjson" and _fits(type_.item, format_)
        case Plain.BINARY | Plain.UUID | Fixed() | Struct() | Map():
            return False
        case _:
            return True
