"""What a user may say about the files sink."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from penstock.core.sizes import size

MIB = 1 << 20


class PartitionBy(BaseModel):
    """One folder per day, month or year of a column (in UTC where the column knows its zone)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str = Field(description="a date or timestamp column of the stream")
    by: Literal["date", "month", "year"] = Field(description="date, month or year")


class Options(BaseModel):
    """A folder that the slices' files are written to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(description="where the files go; relative to the pipeline file")
    format: Literal["parquet", "csv", "ndjson"] = Field(default="parquet", description="parquet, csv or ndjson")
    compression: Literal["none", "gzip", "zstd", "snappy"] | None = Field(
        default=None, description="parquet: zstd unless said otherwise; csv and ndjson: none, gzip or zstd"
    )
    target_file_size: Annotated[int, BeforeValidator(size)] = Field(
        default=128 * MIB, ge=64 * 1024, description="begin another file once one has reached this size"
    )

    @field_validator("directory")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("a folder is needed, for example: directory: out")
        return value


class StreamOptions(BaseModel):
    """What a user may say about one stream in this sink."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition_by: PartitionBy | None = Field(default=None, description="folders by date, month or year of a column")
