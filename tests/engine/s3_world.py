"""The world with the files sink on a real S3 server in it: what a plain listing shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from penstock.ports import Probe
from penstock.sinks.files import FilesSink
from tests.engine.files_world import FilesWorld, place_of
from tests.engine.machine import FilesMachine
from tests.engine.world import PIPELINE, STREAM
from tests.harness.versitygw import gateway
from tests.sinks.files.buckets import Bucket


def _new_bucket() -> Bucket:
    return Bucket(gateway(), gateway().bucket(), "ndjson")


@dataclass
class S3World(FilesWorld):
    """One prefix. What a bucket is restored from has objects, and no uploads: those that were open stay open."""

    bucket: Bucket = field(default_factory=_new_bucket)

    def sink(self, probe: Probe) -> FilesSink:
        return self.bucket.open(probe, PIPELINE)

    def copy_sink(self) -> object:
        return {name: self.bucket.get(name) for name in self.bucket.listed()}

    def restore_sink(self, copy: object) -> None:
        assert isinstance(copy, dict)
        for name in self.bucket.listed():
            self.bucket.remove(name)
        for name, raw in copy.items():
            self.bucket.put(name, raw)
        self.tampered_sink = True
        self.seen = self.visible_files()

    def remove_file(self, name: str) -> None:
        self.bucket.remove(f"{STREAM}/{name}")

    def visible_files(self) -> frozenset[str]:
        return frozenset(name.rpartition("/")[2] for name in self.bucket.visible(STREAM))

    def manifests(self) -> dict[int, dict[str, object]]:
        names = self.bucket.listed(f"_penstock/{PIPELINE}/{STREAM}/manifests/")
        documents = [json.loads(self.bucket.get(name)) for name in names]
        return {document["number"]: document for document in documents}

    def places(self, name: str) -> list[int]:
        return [place_of(line) for line in self.bucket.get(f"{STREAM}/{name}").splitlines()]


class S3Machine(FilesMachine):
    """Beside a prefix of a bucket."""

    world: S3World

    def made_world(self) -> S3World:
        return S3World(self.folder)
