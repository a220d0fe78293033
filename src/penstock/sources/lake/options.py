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

    table: str | None = Field(default=None, description="the table's name; the stream's own unless said otherwise")
    columns: tuple[str, ...] | None = Field(default=None, description="the columns to read; all unless said otherwise")
    where: str | None = Field(
        default=None,
        description="a filter, for example: status = 'paid' and amount > 10; a delete always passes it",
    )
    from_: Literal["beginning", "now"] | Annotated[int, Field(ge=0)] = Field(
        default="beginning",
        alias="from",
        description="where the first run starts: beginning, now, or after a number of the order",
    )
    adopt: bool = Field(
        default=False,
        description="read a table that penstock did not make: adds the column _ingest_seq and rewrites its files once",
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
