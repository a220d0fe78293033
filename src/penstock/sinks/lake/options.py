"""What a user may say about the lake sink."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.lake.options import LakeOptions, plain_name
from penstock.lake.upkeep.options import Size, UpkeepOptions

MIB = 1 << 20


class Options(LakeOptions):
    """The lake that the streams land in."""

    target_file_size: Annotated[Size, Field(ge=MIB)] = Field(
        default=128 * MIB, description="size after which another file is begun (at least 1MiB)"
    )
    upkeep: UpkeepOptions = Field(
        default_factory=UpkeepOptions, description="how `penstock upkeep` keeps the tables; default: see below"
    )


class StreamOptions(BaseModel):
    """What a user may say about one stream's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: str | None = Field(
        default=None,
        description="the table's name: letters, digits and underscores; other characters of a stream's name become "
        "underscores; default: the stream's name",
        examples=["orders"],
    )
    mode: Literal["append", "merge"] = Field(
        default="append",
        description="`append`: a log of versions; `merge`: one current row for each key, tombstones for deletes",
    )
    key: tuple[str, ...] | None = Field(
        default=None,
        description="the columns that identify a row, as a list; with `mode: merge`; default: the stream's primary key",
        examples=[["id"]],
    )
    newer_than: str | None = Field(
        default=None,
        description="with `mode: merge`: a row is taken only if it is newer, by this column, than what the table has; "
        "default: the stream's cursor if `key` does not contain the primary key, else the last one that comes is taken",
        examples=["updated_at"],
    )
    partition_by: tuple[str, ...] = Field(
        default=(),
        description="a list, such as `[day(created_at), bucket(16, id), status]`; only when the table is made; "
        "default: none",
        examples=[["day(created_at)", "bucket(16, id)"]],
    )
    sort_by: tuple[str, ...] = Field(
        default=(),
        description="a list, such as `[customer_id, created_at desc]`: the order inside the files that compaction makes"
        "; only when the table is made; default: the order of the rows",
        examples=[["customer_id", "created_at desc"]],
    )
    into_existing: bool = Field(
        default=False, description="land in a table that penstock did not make; it gets the column `_ingest_seq`"
    )
    replace_existing: bool = Field(
        default=False,
        description="let the first full refresh replace rows that the table has from elsewhere",
    )

    @field_validator("into")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        return plain_name(value) if value is not None else None

    @field_validator("key")
    @classmethod
    def _some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and (not value or len(set(value)) != len(value)):
            raise ValueError("expected at least one column, each once")
        return value
