"""Options of a files sink and its streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from penstock.core.sizes import SIZE_PATTERN, size

MIB = 1 << 20

SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText)]


class Options(BaseModel):
    """A folder into which slices are written as files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(description="the output folder, relative to the pipeline file", examples=["out"])
    format: Literal["parquet", "csv", "ndjson"] = Field(
        default="parquet", description="file format: `parquet`, `csv` or `ndjson`"
    )
    compression: Literal["none", "gzip", "zstd", "snappy"] | None = Field(
        default=None,
        description="`none`, `gzip` or `zstd`, or `snappy` for parquet; default: parquet `zstd`, csv and ndjson `none`",
        examples=["zstd"],
    )
    target_file_size: Size = Field(
        default=128 * MIB, ge=64 * 1024, description="size at which a new file is started (at least 64KiB)"
    )

    @field_validator("directory")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty, for example: directory: out")
        return value


class StreamOptions(BaseModel):
    """Options of one stream."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition_by: tuple[str, ...] = Field(
        default=(),
        description="levels of folders, such as `[month(created_at), bucket(16, id), status]`; default: none",
        examples=[["month(created_at)"]],
    )

    @field_validator("partition_by", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        """Refuse `{column: created_at, by: month}`, as it was written before, with the list to write instead."""
        if isinstance(value, Mapping) and "column" in value:
            transform = {"date": "day"}.get(str(value.get("by")), str(value.get("by", "month")))
            raise ValueError(f"must be a list: write `partition_by: [{transform}({value['column']})]`")
        # Strict validation takes a list for a tuple from a file, but not from a validator.
        return tuple(value) if isinstance(value, list) else value
