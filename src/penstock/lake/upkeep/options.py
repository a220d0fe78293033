"""What a user may say about a table's upkeep."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from penstock.core.sizes import DURATION_PATTERN, SIZE_PATTERN, duration, size
from penstock.lake.forgetting import Rules

MIB = 1 << 20
#: orphans younger than this go only by force: a file may be older than the commit that names it
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
    """How long the table's earlier states are kept."""

    keep_for: Duration = Field(
        default=timedelta(days=5),
        description="how long a state is kept after another has taken its place: as long as your longest query",
    )
    keep_at_least: int = Field(default=10, ge=1, description="the newest states are kept however old they are")
    keep_at_most: int = Field(
        default=100,
        ge=1,
        description="landings forget older states than this many, once they are an hour old; their files stay for "
        "`keep_for`",
    )

    @property
    def rules(self) -> Rules:
        return Rules(most=self.keep_at_most, least=self.keep_at_least, keep_for=self.keep_for)


class OrphanOptions(_Keys):
    """Files that no state of the table names."""

    older_than: Duration = Field(
        default=timedelta(days=3),
        description="remove such files once they are this old; never under a day unless forced",
    )


class RetentionOptions(_Keys):
    """How much of a log is kept. Never passes the slowest reader unless forced."""

    age: Duration | None = Field(
        default=None, description="remove rows that landed longer ago than this; default: none", examples=["90d"]
    )
    size: Size | None = Field(
        default=None,
        description="remove the oldest rows until the data files take this much; default: none",
        examples=["500GB"],
    )

    @model_validator(mode="after")
    def _something(self) -> RetentionOptions:
        if self.age is None and self.size is None:
            raise ValueError("expected age, size or both, for example: age: 90d")
        return self


class TombstoneOptions(_Keys):
    """Rows of a keyed table that say that a key is gone."""

    age: Duration = Field(
        default=timedelta(days=7),
        description="forget deletes this long after they landed, once every reader has seen them",
    )


class UpkeepOptions(_Keys):
    """How `penstock upkeep` keeps the tables."""

    target_file_size: Annotated[Size, Field(ge=MIB)] = Field(
        default=256 * MIB, description="the size of the files that compaction makes (at least 1MiB)"
    )
    min_input_files: int = Field(
        default=5, ge=2, description="compact only where at least about this many files become fewer"
    )
    snapshots: SnapshotOptions = Field(
        default_factory=SnapshotOptions, description="how long earlier states are kept; default: see below"
    )
    orphans: OrphanOptions = Field(
        default_factory=OrphanOptions, description="files that no state names; default: see below"
    )
    retention: RetentionOptions | None = Field(
        default=None, description="how much of a log is kept; default: everything is kept"
    )
    tombstones: TombstoneOptions = Field(
        default_factory=TombstoneOptions, description="when a keyed table forgets what was deleted; default: see below"
    )
