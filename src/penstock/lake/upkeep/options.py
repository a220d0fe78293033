"""Options of `penstock upkeep`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from penstock.core.sizes import DURATION_PATTERN, SIZE_PATTERN, duration, size
from penstock.lake.pruning import SnapshotLimits

MIB = 1 << 20
#: younger orphan files are deleted only with --force: a running commit may still add them to the table
YOUNGEST_ORPHAN = timedelta(days=1)

SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText), Field(gt=0)]
Duration = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(ge=0)] | DurationText),
    Field(ge=timedelta(0)),
]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SnapshotOptions(_Keys):
    """How long snapshots are kept."""

    keep_for: Duration = Field(
        default=timedelta(days=5),
        description="how long a replaced snapshot is kept; at least as long as your longest query",
    )
    keep_at_least: int = Field(default=10, ge=1, description="number of newest snapshots that always stay")
    keep_at_most: int = Field(
        default=100,
        ge=1,
        description="maximum number of snapshots; a landing removes older ones from the metadata once they are an hour "
        "old, and their files stay for `keep_for`",
    )

    @property
    def limits(self) -> SnapshotLimits:
        return SnapshotLimits(most=self.keep_at_most, least=self.keep_at_least, keep_for=self.keep_for)


class OrphanOptions(_Keys):
    """Files that no snapshot of the table references."""

    older_than: Duration = Field(
        default=timedelta(days=3),
        description="age at which they are deleted; under a day only with --force",
    )


class RetentionOptions(_Keys):
    """How much of a log is kept. Unread rows of registered readers are kept except with --force."""

    age: Duration | None = Field(
        default=None, description="delete rows that were written longer ago than this; default: none", examples=["90d"]
    )
    size: Size | None = Field(
        default=None,
        description="delete the oldest rows until the data files fit; default: none",
        examples=["500GB"],
    )

    @model_validator(mode="after")
    def _check_some(self) -> RetentionOptions:
        if self.age is None and self.size is None:
            raise ValueError("expected age, size or both, for example: age: 90d")
        return self


class TombstoneOptions(_Keys):
    """Rows of a keyed table that record the delete of a key."""

    age: Duration = Field(
        default=timedelta(days=7),
        description="age at which tombstones are deleted, once every reader has read them",
    )


class UpkeepOptions(_Keys):
    """Settings of `penstock upkeep`."""

    target_file_size: Annotated[Size, Field(ge=MIB)] = Field(
        default=256 * MIB, description="target size of compacted files (at least 1MiB)"
    )
    min_input_files: int = Field(
        default=5, ge=2, description="compact a partition with about this many small files or more"
    )
    snapshots: SnapshotOptions = Field(
        default_factory=SnapshotOptions, description="how long snapshots are kept; default: see below"
    )
    orphans: OrphanOptions = Field(
        default_factory=OrphanOptions, description="files that no snapshot references; default: see below"
    )
    retention: RetentionOptions | None = Field(
        default=None, description="how much of a log is kept; default: everything"
    )
    tombstones: TombstoneOptions = Field(
        default_factory=TombstoneOptions, description="when a keyed table deletes its tombstones; default: see below"
    )
