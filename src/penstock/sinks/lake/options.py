"""Options of a lake sink and its streams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.lake.options import Columns, LakeOptions, PlainName
from penstock.lake.upkeep.options import Duration, Size, UpkeepOptions

MIB = 1 << 20


class Options(LakeOptions):
    """The lake into which the streams are written."""

    target_file_size: Annotated[Size, Field(ge=MIB)] = Field(
        default=128 * MIB, description="size at which a new file is started (at least 1MiB)"
    )
    upkeep: UpkeepOptions = Field(
        default_factory=UpkeepOptions, description="settings of `penstock upkeep`; default: see below"
    )


class StreamOptions(BaseModel):
    """Options of one stream's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: PlainName | None = Field(
        default=None,
        description="the table, of letters, digits and underscores; default: the stream's name, with underscores for "
        "other characters",
        examples=["orders"],
    )
    mode: Literal["append", "merge", "state"] = Field(
        default="append",
        description="`append`: a log of row versions; `merge`: one current row per key, and tombstones for deletes; "
        "`state`: the same for each entity of a stream of ops, such as an outbox",
    )
    key: Columns | None = Field(
        default=None,
        description="with `mode: merge`: columns that identify a row; default: the stream's primary key",
        examples=[["id"]],
    )
    newer_than: str | None = Field(
        default=None,
        description="with `mode: merge`: write a row only if this column is newer than in the table; default: the "
        "stream's cursor if `key` lacks the primary key; `_changed_at` of a stream with changes of an API; otherwise "
        "the last row wins",
        examples=["updated_at"],
    )
    deletes: Literal["ignore", "soft", "hard"] = Field(
        default="hard",
        description="with `mode: merge`: rows deleted at the source: `ignore` them, mark them (`soft`) or replace them "
        "by tombstones (`hard`)",
    )
    deleted_at: str | None = Field(
        default=None,
        min_length=1,
        description="with `deletes: soft`, the column for the timestamp of the delete; default: none",
        examples=["deleted_at"],
    )
    early_for: Duration | None = Field(
        default=None,
        description="with `mode: state`: how long ops are kept whose entity has not come yet, such as `30d`; default: "
        "for ever",
        examples=["30d"],
    )
    partition_by: tuple[str, ...] = Field(
        default=(),
        description="partitions of a new table, such as `[day(created_at), bucket(16, id), status]`; default: none",
        examples=[["day(created_at)", "bucket(16, id)"]],
    )
    sort_by: tuple[str, ...] = Field(
        default=(),
        description="sort order in compacted files of a new table, such as `[customer_id, created_at desc]`; default: "
        "the order of the rows",
        examples=[["customer_id", "created_at desc"]],
    )
    into_existing: bool = Field(
        default=False, description="write into a table that penstock did not create; this adds the column `_ingest_seq`"
    )
    replace_existing: bool = Field(
        default=False,
        description="allow the first full refresh to replace existing rows",
    )

    @property
    def marker(self) -> str | None:
        """The column in which deletes are marked; None: they are not marked."""
        return self.deleted_at if self.mode == "merge" and self.deletes == "soft" else None
