"""The `receiver` section of a pipeline file: what `penstock serve` listens on, takes and keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config.types import Duration, Keys, Size
from penstock.links.json_values import check_column_type

ColumnType = Annotated[str, AfterValidator(check_column_type)]

MIB = 1 << 20
GIB = 1 << 30


class ReceiverStream(Keys):
    """A stream that the receiver takes."""

    takes: Literal["rows", "ops"] = Field(
        default="rows", description="what its batches hold: `rows`, or `ops`, documents that describe changes"
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="fields of its rows and their types, as in a `wal` source; a batch with a value that does not fit "
        "is refused; default: any fields",
        examples=[{"id": "int64", "name": "string"}],
    )
    primary_key: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="columns that every row must have, not null; default: none",
        examples=[["id"]],
    )
    extra_fields: Literal["keep", "refuse"] = Field(
        default="keep", description="fields that are not in `columns`: `keep` them in the log, or `refuse` the batch"
    )
    producers: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="names of the pipelines and programs that may send slices; batches of others, and those without a "
        "producer, are refused; default: any sender",
        examples=[["shop"]],
    )
    keys: Literal["required", "optional"] = Field(
        default="required",
        description="whether a batch without a producer needs an `Idempotency-Key`; with `optional`, a batch without "
        "a key is taken each time it is sent",
    )

    @model_validator(mode="after")
    def _check_columns(self) -> ReceiverStream:
        if unknown := [name for name in self.primary_key if self.columns and name not in self.columns]:
            raise ValueError(f"`primary_key` names {unknown[0]}, which is not in `columns`")
        if self.takes == "ops" and (self.columns or self.primary_key):
            raise ValueError("a stream of ops has no `columns` and no `primary_key`")
        if self.extra_fields == "refuse" and not self.columns:
            raise ValueError("`extra_fields: refuse` needs `columns`")
        return self


class ReceiverTls(Keys):
    """Certificate files for TLS."""

    certificate: str = Field(
        description="the server's certificate, followed by those of its issuers", examples=["tls/server.pem"]
    )
    key: str = Field(description="the private key of the certificate", examples=["tls/server.key"])


class ReceiverLog(Keys):
    """Sizes and times of the logs."""

    segment_bytes: Size = Field(default=64 * MIB, description="a segment of a log is closed when it is larger")
    segment_age: Duration = Field(
        default=timedelta(hours=1), description="a segment is closed when it is older and something arrives"
    )
    budget: Size = Field(default=10 * GIB, description="maximum size of one stream's log")
    total_budget: Size = Field(default=50 * GIB, description="maximum size of all logs together")
    backlog: Size = Field(
        default=5 * GIB,
        description="a batch is answered with 429 while a registered reader of the stream has this much to read",
    )
    key_time: Duration = Field(
        default=timedelta(days=1), description="how long the key of a batch without a producer is remembered"
    )


class ReceiverLimits(Keys):
    """What one client may ask for."""

    request_bytes: Size = Field(default=16 * MIB, description="maximum size of a request's body, as it is sent")
    decoded_bytes: Size = Field(default=64 * MIB, description="maximum size of a body after decompression")
    rows: int = Field(default=1_000_000, ge=1, description="maximum rows of a batch")
    row_bytes: Size = Field(default=8 * MIB, description="maximum size of one row")
    fields: int = Field(default=2000, ge=1, description="maximum fields of one row")
    request_time: Duration = Field(
        default=timedelta(seconds=60), description="time in which a request must have arrived whole"
    )
    idle_time: Duration = Field(
        default=timedelta(seconds=30), description="time after which a connection without a request is closed"
    )
    requests: int = Field(default=64, ge=1, description="maximum requests in progress; others are answered with 429")
    connections: int = Field(default=512, ge=1, description="maximum open connections; others are closed")
    stream_count: int = Field(default=1000, ge=1, description="maximum number of streams")


class Receiver(Keys):
    """What `penstock serve` does."""

    directory: str = Field(
        min_length=1, description="folder of the logs, one below it for each stream", examples=[".penstock/received"]
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; another one than loopback needs tokens",
        examples=["0.0.0.0"],
    )
    port: int = Field(default=8737, ge=0, le=65535, description="port to listen on; 0: any free one")
    create_streams: bool = Field(
        default=False, description="a stream that is not declared is created by its first batch"
    )
    streams: dict[str, ReceiverStream] = Field(
        default_factory=dict,
        description="streams by name; default: none",
        examples=[{"orders": {"columns": {"id": "int64", "status": "string"}}}],
    )
    log: ReceiverLog = Field(default=ReceiverLog(), description="sizes and times of the logs; default: all defaults")
    limits: ReceiverLimits = Field(
        default=ReceiverLimits(), description="what one client may ask for; default: all defaults"
    )
    tls: ReceiverTls | None = Field(default=None, description="certificate files for TLS; default: no TLS")

    @model_validator(mode="after")
    def _check_streams(self) -> Receiver:
        if not self.streams and not self.create_streams:
            raise ValueError("no stream can be received: declare `streams`, or set `create_streams: true`")
        return self
