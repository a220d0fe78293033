"""What a user may say about the lake as a source."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.lake.options import LakeOptions, plain_name


class Options(LakeOptions):
    """The lake that the streams are read from."""


class StreamOptions(BaseModel):
    """What a user may say about one table."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    table: str | None = Field(
        default=None,
        description="the table's name, without its namespace; default: the stream's name",
        examples=["orders"],
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        description="the columns to read, as a list; with a keyed table its key must be among them; default: all",
        examples=[["id", "name"]],
    )
    where: str | None = Field(
        default=None,
        description="a filter, such as `status = 'paid' and amount > 10`; a delete always passes it; default: none",
        examples=["status = 'paid'"],
    )
    from_: Literal["beginning", "now"] | Annotated[int, Field(ge=0)] = Field(
        default="beginning",
        alias="from",
        description="where the first run starts: `beginning`, `now`, or a number: the rows after it",
    )
    adopt: bool = Field(
        default=False,
        description="read a table that penstock did not make: it gets the column `_ingest_seq`, and its files are "
        "rewritten once",
    )

    @field_validator("from_", mode="before")
    @classmethod
    def _no_truth(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("expected beginning, now, or a number")
        return value

    @field_validator("table")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        return plain_name(value) if value is not None else None

    @field_validator("columns")
    @classmethod
    def _some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and (not value or len(set(value)) != len(value)):
            raise ValueError("expected at least one column, each once")
        return value
