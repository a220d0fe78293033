"""A prefix of a bucket with a files sink on it, and what lies there, seen by a client of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from tests.harness.versitygw import Gateway

from penstock.ports import Context, NoProbe, Probe
from penstock.sinks.files import FilesSink, Options, StreamOptions, build
from penstock.sinks.files.layout import safe
from penstock.testing.contracts.delivery import PIPELINE, STREAM, table

Format = Literal["parquet", "csv", "ndjson"]


@dataclass
class Bucket:
    """Files below a prefix, read by a plain listing."""

    gateway: Gateway
    name: str
    format: Format = "parquet"
    prefix: str = "out"
    #: further keys of the `s3` block
    s3: Mapping[str, Any] = field(default_factory=dict)

    @property
    def client(self) -> Any:
        return self.gateway.client

    @property
    def options(self) -> dict[str, Any]:
        place = f"s3://{self.name}/{self.prefix}"
        return {"directory": place, "format": self.format, "s3": {**self.gateway.options, **self.s3}}

    def open(self, probe: Probe | None = None, pipeline: str = PIPELINE, **more: Any) -> FilesSink:
        streams = {name: StreamOptions.model_validate(each) for name, each in more.pop("streams", {}).items()}
        options = Options.model_validate({**self.options, **more})
        return build(options, streams, Context(pipeline=pipeline, folder="/", probe=probe or NoProbe()))

    # ------------------------------------------------------------ what lies there

    def listed(self, below: str = "") -> list[str]:
        """The names of all objects, relative to the prefix."""
        start = f"{self.prefix}/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=start + below)
        return [each["Key"][len(start) :] for page in pages for each in page.get("Contents", ())]

    def uploads(self) -> list[tuple[str, str]]:
        found = self.client.list_multipart_uploads(Bucket=self.name, Prefix=f"{self.prefix}/").get("Uploads", ())
        return [(each["Key"], each["UploadId"]) for each in found]

    def get(self, name: str) -> bytes:
        found = self.client.get_object(Bucket=self.name, Key=f"{self.prefix}/{name}")
        with found["Body"] as body:
            raw: bytes = body.read()
        return raw

    def put(self, name: str, raw: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"{self.prefix}/{name}", Body=raw)

    def remove(self, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"{self.prefix}/{name}")

    def visible(self, stream: str = STREAM) -> list[str]:
        """The files that a reader of the stream's prefix lists: like Spark, it skips what begins with `_` or `.`."""
        keys = self.listed(f"{safe(stream)}/")
        if (pointer := f"{safe(stream)}/_current.json") in keys:
            named: list[str] = json.loads(self.get(pointer))["files"]
            return named
        return [key for key in keys if not any(part[0] in "_." for part in key.split("/"))]

    def manifest(self, number: int, stream: str = STREAM) -> str:
        return f"_penstock/{PIPELINE}/{safe(stream)}/manifests/{number:012d}.json"

    # ------------------------------------------------------------ as the contract has it

    def rows(self, stream: str, column: str = "id") -> list[int]:
        rows: list[int] = []
        for name in self.visible(stream):
            rows += self._read(self.get(name)).column(column).to_pylist()
        return rows

    def _read(self, raw: bytes) -> pa.Table:
        file = io.BytesIO(raw)
        if self.format == "parquet":
            return pq.read_table(file)
        return pc.read_csv(file) if self.format == "csv" else pj.read_json(file)

    def occupy(self, stream: str, *ids: int) -> None:
        file = io.BytesIO()
        pq.write_table(table(*ids), file)
        self.put(f"{safe(stream)}/theirs.parquet", file.getvalue())

    def count_leftovers(self) -> int:
        return len(self.uploads())

    def damage(self, stream: str) -> None:
        self.remove(max(self.visible(stream)))
