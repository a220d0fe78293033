"""Options of a files sink and its streams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from penstock.core.sizes import SIZE_PATTERN, size
from penstock.links.s3 import S3Options

MIB = 1 << 20
#: S3 takes 10,000 parts of an upload
MOST_ON_S3 = 50 << 30
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")

SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText)]


class Options(BaseModel):
    """A folder into which slices are written as files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        description="the output folder, relative to the pipeline file, or `s3://bucket/prefix`", examples=["out"]
    )
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

    s3: S3Options | None = Field(default=None, description="how a bucket is reached; default: as the environment says")

    @field_validator("directory")
    @classmethod
    def _named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty, for example: directory: out")
        scheme, separator, _ = value.partition("://")
        if separator and scheme != "s3":
            raise ValueError(_explain_scheme(scheme))
        if separator:
            split_bucket(value)
        return value

    @property
    def on_s3(self) -> bool:
        return self.directory.startswith("s3://")

    def find_conflict(self) -> tuple[str, str] | None:
        """Keys that do not fit together, and the next step; None: all do."""
        if self.format != "parquet" and self.compression == "snappy":
            return f"sink.compression: snappy does not fit format {self.format}", "use none, gzip or zstd"
        if self.s3 is not None and not self.on_s3:
            what = "sink.s3 is given, but sink.directory is a local folder"
            return what, "write directory: s3://bucket/prefix, or leave s3 out"
        if self.on_s3 and self.target_file_size > MOST_ON_S3:
            return "sink.target_file_size is above 50GiB, the most on S3", "choose a smaller size"
        if self.s3 is not None and (conflict := self.s3.find_conflict()):
            return f"sink.{conflict}", "correct the s3 block of the sink"
        return None


def split_bucket(directory: str) -> tuple[str, str]:
    """The bucket and the prefix of `s3://bucket/prefix`; ValueError if it is no such address."""
    match = _BUCKET.fullmatch(directory)
    if not match:
        raise ValueError("must be s3://bucket/prefix, with a valid bucket name")
    prefix = (match[2] or "").strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise ValueError("the prefix must not have empty parts, `.` or `..`")
    if any(part[0] in "._" for part in prefix.split("/") if part):
        raise ValueError("no part of the prefix may begin with `.` or `_`: Spark, Arrow and Hive would not read it")
    return match[1], prefix


def _explain_scheme(scheme: str) -> str:
    if scheme in ("gs", "gcs", "abfs", "abfss", "az", "wasb", "wasbs"):
        return (
            f"{scheme}:// cannot be written: a commit needs a create that fails if the object exists, and uploads that "
            "stay invisible until then, through S3's protocol; use s3:// or a local directory"
        )
    if scheme == "file":
        return "file:// cannot be written: name the folder by its path"
    return f"{scheme}:// cannot be written: use s3://bucket/prefix or a local directory"


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
