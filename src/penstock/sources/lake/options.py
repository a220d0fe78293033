"""Options of a lake source and its streams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.lake.options import Columns, LakeOptions, PlainName


class Options(LakeOptions):
    """The lake that the streams are read from."""


class StreamOptions(BaseModel):
    """Options of one table."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    table: PlainName | None = Field(
        default=None,
        description="the table's name, without its namespace; default: the stream's name",
        examples=["orders"],
    )
    columns: Columns | None = Field(
        default=None,
        description="columns to read, including the key of a keyed table; default: all",
        examples=[["id", "name"]],
    )
    where: str | None = Field(
        default=None,
        description="filter, such as `status = 'paid' and amount > 10`; deletes always pass; default: none",
        examples=["status = 'paid'"],
    )
    from_: Literal["beginning", "now"] | Annotated[int, Field(ge=0)] = Field(
        default="beginning",
        alias="from",
        description="where the first run starts: `beginning`, `now`, or after a number",
    )
    adopt: bool = Field(
        default=False,
        description="read a table that penstock did not create; this adds the column `_ingest_seq` and rewrites the "
        "table's files once",
    )

    @field_validator("from_", mode="before")
    @classmethod
    def _check_from(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("expected beginning, now, or a number")
        return value
