"""The models of a pipeline file: its keys, and the validated file.

Each source and sink owns the model of its own options and of its streams' options. The keys that every stream has are
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from penstock.config.receiver import Receiver
from penstock.config.types import Duration, Keys, Size
from penstock.core.history import NEWEST_KEPT, HistoryLimits
from penstock.shaping.options import Shape


def _spark_text(value: Any) -> Any:
    """A number or boolean in the form that Spark's settings use."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SparkText = Annotated[str, BeforeValidator(_spark_text, json_schema_input_type=str | float | bool)]


class Spark(Keys):
    """Settings of Spark, which moves the rows."""

    master: str | None = Field(
        default=None,
        min_length=1,
        description="where Spark runs; `local[2,3]`: two workers, three attempts per part (`local[2]` never retries); "
        "default: `local[N,3]` with N processors, at most 4",
        examples=["local[2,3]"],
    )
    memory: str = Field(
        default="1g", description="heap size of the JVM, as in Java's -Xmx; rows do not pass through the heap"
    )
    config: dict[str, SparkText] = Field(
        default_factory=dict,
        description="settings of Spark by name",
        examples=[{"spark.ui.enabled": True}],
    )
    keep_warm: Duration | None = Field(
        default=None,
        description="after a run that started Spark, keep a warm worker until no run has used it for this time; "
        "default: no worker",
        examples=["15m"],
    )
    executor_seconds: float = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds to wait for the first executor of a cluster before the run fails",
    )

    @field_validator("master")
    @classmethod
    def _check_master(cls, master: str | None) -> str | None:
        if master is not None and master.startswith("sc://"):
            raise ValueError(
                "Spark Connect is not supported; expected `local[2,3]`, or a cluster such as spark://host:7077"
            )
        return master

    @field_validator("config")
    @classmethod
    def _check_config(cls, config: dict[str, str]) -> dict[str, str]:
        if "spark.remote" in config or config.get("spark.api.mode") == "connect":
            raise ValueError("Spark Connect is not supported; set `master` to the address of the cluster")
        return config

    @field_validator("memory")
    @classmethod
    def _check_memory(cls, memory: str) -> str:
        if not re.fullmatch(r"[1-9][0-9]*[kmgt]", memory.lower()):
            raise ValueError("expected a size in Java's notation, such as 512m or 2g")
        return memory


class History(Keys):
    """How much history the store keeps."""

    days: float = Field(
        default=HistoryLimits().days,
        gt=0,
        description=f"days after which mark changes and runs are deleted; the newest {NEWEST_KEPT} per stream and "
        "pipeline always stay",
    )
    changes: int = Field(
        default=HistoryLimits().changes,
        ge=NEWEST_KEPT,
        description="maximum number of mark changes kept per stream, and so how far `penstock state undo` can go back",
    )
    runs: int = Field(
        default=HistoryLimits().runs, ge=NEWEST_KEPT, description="maximum number of runs kept per pipeline"
    )


_VARIABLES = "; PENSTOCK_PIPELINE, PENSTOCK_ERROR and other variables describe the run"


def _hook(when: str, example: str) -> Any:
    """The field of a command that is executed after a run."""
    description = f"shell command after a {when}"
    return Field(default=None, min_length=1, description=description, examples=[example])


class FileKeys(Keys):
    """The top-level keys of the file."""

    store: str = Field(
        default=".penstock/store.db",
        min_length=1,
        description="the store that keeps the marks: a path, `sqlite:///PATH` or `postgresql://…`",
    )
    history: History = Field(default=History(), description="how much history the store keeps; default: all defaults")
    spark: Spark = Field(default=Spark(), description="settings of Spark; default: all defaults")
    on_failure: str | None = _hook("failed run of any pipeline" + _VARIABLES, "./tell.sh")
    on_success: str | None = _hook("successful run of any pipeline", "date > last-success")
    receiver: Receiver | None = Field(
        default=None, description="what `penstock serve` receives over HTTP; default: nothing"
    )
    pipelines: dict[str, Any] = Field(
        description="pipelines by name; a renamed pipeline starts again from the beginning"
    )

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str) -> str:
        scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", store)
        if scheme and scheme[1].partition("+")[0] not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("expected a path, sqlite:///PATH or postgresql://…")
        return store


class PipelineKeys(Keys):
    """A pipeline's own keys."""

    source: dict[str, Any] = Field(description="where rows come from: `type`, and the keys of that type")
    sink: dict[str, Any] = Field(description="where rows go: `type`, and the keys of that type")
    slice_bytes: Size = Field(
        default=256 * 1024 * 1024,
        description="target size of a slice in Arrow bytes, such as `64MiB` or `1.5GB`; a postgres sink's default is "
        "`128MiB`, for short locks",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds without a heartbeat after which another run may take over",
    )
    spools: str = Field(
        default=".penstock/spools",
        min_length=1,
        description="folder for rows that are read ahead or staged; shared, if several machines run the pipeline",
    )
    on_failure: str | None = _hook("failed run" + _VARIABLES, "./tell.sh")
    on_success: str | None = _hook("successful run", "date > last-success")
    streams: dict[str, dict[str, Any] | None] | None = Field(
        default=None,
        description="streams by name, with the keys of any stream and of the source's and sink's streams; default: "
        "every stream that discovery finds",
    )


class StreamKeys(Keys):
    """The keys that every stream has, whatever its source and sink."""

    drift: Literal["evolve", "freeze", "quarantine"] = Field(
        default="evolve",
        description="what to do when the source's columns change: `evolve` changes the sink where no data is lost, "
        "`freeze` stops the stream, `quarantine` keeps the sink's columns and stores other values separately",
    )
    dropped: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="columns that were dropped at the source, not renamed; without it, `drift: evolve` stops when one "
        "column is replaced by another of its type; default: none",
        examples=[["note"]],
    )
    shape: Shape | None = Field(
        default=None,
        description="changes to columns and rows before delivery; default: rows are delivered as they are read",
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
    #: the common keys of each stream by name; empty if discovery chooses the streams
    streams: Mapping[str, StreamKeys]
    #: the same streams with the source's StreamOptions
    source_streams: Mapping[str, BaseModel]
    #: the same streams with the sink's StreamOptions
    sink_streams: Mapping[str, BaseModel]
    slice_bytes: int
    lease_seconds: float
    #: the folder for spools, as the file has it
    spools: str = ".penstock/spools"
    #: shell commands after a run; None if those of the file apply
    on_failure: str | None = field(default=None, repr=False)
    on_success: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class File:
    """A pipeline file, validated."""

    #: the path as it was given
    path: str
    #: its absolute folder; relative paths in the file start here
    folder: str
    #: a path or a URL; hidden, because a URL may contain a password
    store: str = field(repr=False)
    #: how much history the store keeps
    history: HistoryLimits
    spark: Spark
    pipelines: Mapping[str, Pipeline]
    #: shell commands after a run of a pipeline without its own
    on_failure: str | None = field(default=None, repr=False)
    on_success: str | None = field(default=None, repr=False)
    #: what `penstock serve` receives; None: nothing
    receiver: Receiver | None = None
