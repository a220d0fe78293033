"""What a pipeline file may say, and what it says once it has been read.

The keys of sources, sinks and their streams are not here: each source and sink owns its options. What every stream has,
whatever its source and sink, is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from penstock.core.history import NEWEST_KEPT, HistoryLimits
from penstock.core.sizes import DURATION_PATTERN, SIZE_PATTERN, duration, size
from penstock.shaping.options import Shape


def _spelt(value: Any) -> Any:
    """A number or truth value as Spark spells it in a text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText), Field(gt=0)]
DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Duration = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(gt=0)] | DurationText),
    Field(gt=timedelta()),
]
Spelt = Annotated[str, BeforeValidator(_spelt, json_schema_input_type=str | float | bool)]


class Keys(BaseModel):
    """Keys that penstock itself reads."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Spark(Keys):
    """How rows are moved."""

    master: str | None = Field(
        default=None,
        min_length=1,
        description="where Spark runs; `local[2,3]`: two workers, a part is tried three times (`local[2]` would never "
        "try again); default: `local[N,3]`, N the number of processors, at most 4",
        examples=["local[2,3]"],
    )
    memory: str = Field(default="1g", description="the JVM's heap, in Java's spelling; rows never enter it")
    config: dict[str, Spelt] = Field(
        default_factory=dict,
        description="any of Spark's own settings, by name",
        examples=[{"spark.ui.enabled": True}],
    )
    keep_warm: Duration | None = Field(
        default=None,
        description="a run that had to start Spark leaves a warm worker behind, which ends after this time without a "
        "run; default: none is left",
        examples=["15m"],
    )
    executor_seconds: float = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a cluster may take to give a run an executor before the run fails",
    )

    @field_validator("master")
    @classmethod
    def _of_a_classic_spark(cls, master: str | None) -> str | None:
        if master is not None and master.startswith("sc://"):
            raise ValueError(
                "Spark Connect is not supported; expected `local[2,3]`, or a cluster as in spark://host:7077"
            )
        return master

    @field_validator("config")
    @classmethod
    def _without_spark_connect(cls, config: dict[str, str]) -> dict[str, str]:
        if "spark.remote" in config or config.get("spark.api.mode") == "connect":
            raise ValueError("Spark Connect is not supported; name a cluster's own address in `master` instead")
        return config

    @field_validator("memory")
    @classmethod
    def _as_java_spells_it(cls, memory: str) -> str:
        if not re.fullmatch(r"[1-9][0-9]*[kmgt]", memory.lower()):
            raise ValueError("expected a size as Java spells it, such as 512m or 2g")
        return memory


class History(Keys):
    """How much of the past the store keeps."""

    days: float = Field(
        default=HistoryLimits().days,
        gt=0,
        description=f"age in days at which changes of marks and runs are removed; the newest {NEWEST_KEPT} of each "
        "stream and of each pipeline always stay",
    )
    changes: int = Field(
        default=HistoryLimits().changes,
        ge=NEWEST_KEPT,
        description="maximum number of changes kept for each stream: how far `penstock state undo` can go back",
    )
    runs: int = Field(
        default=HistoryLimits().runs, ge=NEWEST_KEPT, description="maximum number of runs kept for each pipeline"
    )


class FileKeys(Keys):
    """The top of the file."""

    store: str = Field(
        default=".penstock/store.db",
        min_length=1,
        description="where marks live: a path, `sqlite:///PATH` or `postgresql://…`",
    )
    history: History = Field(
        default=History(), description="how much of the past the store keeps; default: all defaults"
    )
    spark: Spark = Field(default=Spark(), description="how rows are moved; default: all defaults")
    spools: str = Field(
        default=".penstock/spools",
        min_length=1,
        description="folder for rows that a source has read ahead or a sink has staged, until they are delivered; "
        "several machines that run the pipeline need a shared one",
    )
    on_failure: str | None = Field(
        default=None,
        min_length=1,
        description="command that `penstock run` gives to `sh` after a run of any pipeline has failed; "
        "PENSTOCK_PIPELINE, PENSTOCK_ERROR and others tell it about the run",
        examples=["./tell.sh"],
    )
    on_success: str | None = Field(
        default=None,
        min_length=1,
        description="command that `penstock run` gives to `sh` after a run of any pipeline has ended well",
        examples=["date > last-success"],
    )
    pipelines: dict[str, Any] = Field(description="pipelines by name; the name is part of what the sink remembers")

    @field_validator("store")
    @classmethod
    def _of_a_known_kind(cls, store: str) -> str:
        scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", store)
        if scheme and scheme[1].partition("+")[0] not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("expected a path, sqlite:///PATH or postgresql://…")
        return store


class PipelineKeys(Keys):
    """A pipeline's own keys."""

    source: dict[str, Any] = Field(description="where rows come from: `type` and the keys of that source")
    sink: dict[str, Any] = Field(description="where they go: `type` and the keys of that sink")
    slice_bytes: Size = Field(
        default=256 * 1024 * 1024,
        description="Arrow bytes to aim for in one slice: a number, or with a unit (`64MiB`, `1.5GB`); a postgres sink "
        "aims for `128MiB` where nothing is said, so that its locks stay short",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        allow_inf_nan=False,
        description="a run that has not been heard of for so long may be replaced",
    )
    spools: str = Field(
        default=".penstock/spools",
        min_length=1,
        description="folder for rows that a source has read ahead or a sink has staged, until they are delivered; "
        "several machines that run the pipeline need a shared one",
    )
    on_failure: str | None = Field(
        default=None,
        min_length=1,
        description="command that `penstock run` gives to `sh` after its run has failed; "
        "PENSTOCK_PIPELINE, PENSTOCK_ERROR and others tell it about the run",
        examples=["./tell.sh"],
    )
    on_success: str | None = Field(
        default=None,
        min_length=1,
        description="command that `penstock run` gives to `sh` after its run has ended well",
        examples=["date > last-success"],
    )
    streams: dict[str, dict[str, Any] | None] | None = Field(
        default=None,
        description="streams by name; each has the keys of any stream, of the source's streams and of the sink's "
        "streams together; default: all that discovery finds",
    )


class StreamKeys(Keys):
    """A stream's own keys, whatever its source and sink."""

    drift: Literal["evolve", "freeze", "quarantine"] = Field(
        default="evolve",
        description="what happens when the source's columns change: `evolve` follows where nothing is lost, `freeze` "
        "stops the stream, `quarantine` keeps the sink's columns and puts what does not fit aside",
    )
    dropped: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="columns, as a list, that were dropped at the source and not renamed: without it, `drift: evolve` "
        "stops where a column goes and one of its type comes in its place; default: none",
        examples=[["note"]],
    )
    shape: Shape | None = Field(
        default=None,
        description="what becomes of columns and rows on their way; default: they are delivered as they are read",
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline, validated. `streams`, `source_streams` and `sink_streams` have the same names."""

    name: str
    source_type: str
    #: the source's own Options
    source: BaseModel
    sink_type: str
    #: the sink's own Options
    sink: BaseModel
    #: streams by name, each with penstock's own keys; empty: every stream that discovery finds
    streams: Mapping[str, StreamKeys]
    #: the same streams with the source's StreamOptions
    source_streams: Mapping[str, BaseModel]
    #: and with the sink's StreamOptions
    sink_streams: Mapping[str, BaseModel]
    slice_bytes: int
    lease_seconds: float
    #: the folder for spools, as the file has it
    spools: str = ".penstock/spools"
    #: commands that are run after a run; None: the file's, if it has some
    on_failure: str | None = field(default=None, repr=False)
    on_success: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class File:
    """A pipeline file, validated."""

    #: the path as it was given
    path: str
    #: the folder it lies in, absolute: relative paths in it start here
    folder: str
    #: a path or a URL; not shown, because a URL may hold a password
    store: str = field(repr=False)
    #: how much of the past the store keeps
    history: HistoryLimits
    spark: Spark
    pipelines: Mapping[str, Pipeline]
    #: commands that are run after a run of a pipeline that has none of its own
    on_failure: str | None = field(default=None, repr=False)
    on_success: str | None = field(default=None, repr=False)
