"""Options of a wal source and its streams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from penstock.core.types import Plain, is_nested, parse_type


def _column_type(value: str) -> str:
    type_ = parse_type(value)
    if is_nested(type_) or type_ in (Plain.NULL, Plain.BINARY, Plain.UUID) or str(type_).startswith("fixed"):
        raise ValueError(f"a column cannot have type {value} here; use json for objects and lists")
    return value


ColumnType = Annotated[str, AfterValidator(_column_type)]


class Options(BaseModel):
    """Where the receiver keeps its logs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        min_length=1, description="folder of the receiver's logs, as `penstock serve` was given it", examples=["wal"]
    )


class StreamOptions(BaseModel):
    """What the rows of a stream look like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: dict[str, ColumnType] = Field(
        min_length=1,
        description="columns and their types: bool, int64, float64, decimal(p,s), string, json, date, timestamp, "
        "timestamptz; fields of rows that are not listed are left out",
        examples=[{"id": "int64", "name": "string"}],
    )
    key: tuple[str, ...] = Field(default=(), description="columns that identify a row; default: none")
    changes: bool = Field(
        default=False,
        description="rows have a field `_change`, which is `upsert` or `delete`; else all are upserts",
    )
    damaged: Literal["stop", "skip"] = Field(
        default="stop",
        description="what becomes of a damaged record of the log: `stop` the stream, or `skip` the record and say so",
    )
