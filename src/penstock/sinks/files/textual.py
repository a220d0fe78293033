"""Which columns a text format can hold exactly, by their type as pyarrow prints it: asked before Arrow is imported."""

from __future__ import annotations

#: the types that no text format has an exact form for
_UNTEXTUAL = ("binary", "large_binary", "fixed_size_binary", "large_list", "fixed_size_list", "struct", "map")
_LIST = "list<"


def refusal(name: str, kind: str, format_: str) -> tuple[str, str] | None:
    """Why a format cannot hold a column, and what to do; None: it can."""
    if format_ == "parquet" or _fits(kind, format_):
        return None
    step = "use format: parquet, or leave the column out with `columns`"
    if kind.startswith(_LIST) and _fits(kind, "ndjson"):
        step = (
            "use format: parquet or ndjson, let the source send it as text (`arrays: text` of a postgres stream), "
            "or leave the column out with `columns`"
        )
    return f"column {name!r} is {kind}, which {format_} cannot hold exactly", step


def _fits(kind: str, format_: str) -> bool:
    if kind.startswith(_LIST):
        # list<item: int32>
        return format_ == "ndjson" and _fits(kind.removeprefix(_LIST).removesuffix(">").partition(": ")[2], format_)
    return not kind.startswith(_UNTEXTUAL)
