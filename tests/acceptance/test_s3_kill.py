"""SIGKILL at every step from staging to advance, into a bucket: a plain listing has every row once, and keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.compare import Comparison
from tests.acceptance.shop import PIPELINE, Shop
from tests.harness.versitygw import gateway
from tests.sinks.files.buckets import Bucket

POINTS = (
    "gate.moved",
    "files.manifest_written",
    "files.manifest_linked",
    "files.file_visible",
    "files.all_visible",
    "gate.advanced",
)
KEYS = 'region: us-east-1, access_key_id: "${S3_KEY}", secret_access_key: "${S3_SECRET}"'


class BucketShop:
    """A shop whose orders go into a bucket."""

    def __init__(self, database: str, folder: Path, mover: str) -> None:
        self.bucket = Bucket(gateway(), gateway().bucket())
        self.shop = Shop.open(database, folder, mover=mover)
        options = self.bucket.gateway.options
        place = f's3: {{endpoint: "{options["endpoint"]}", {KEYS}}}'
        sink = f'{{type: files, directory: "s3://{self.bucket.name}/out", {place}}}'
        text = PIPELINE.format(store=".penstock/store.db", slice_bytes=65536, lease=30)
        (folder / "shop.yaml").write_text(text.replace("{type: files, directory: out}", sink))
        keys = {"S3_KEY": options["access_key_id"], "S3_SECRET": options["secret_access_key"]}
        self.shop.command.environment = {"DATABASE_URL": database, **keys}

    def compared(self) -> Comparison:
        """Copy everything that a listing shows, and compare that."""
        for name in self.bucket.listed():
            path = self.shop.folder / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.bucket.get(name))
        return self.shop.compared()


@pytest.mark.parametrize(("point", "mover"), [*((point, "loop") for point in POINTS), ("files.file_visible", "spark")])
def test_killed_at(point: str, mover: str, database: str, tmp_path: Path) -> None:
    world = BucketShop(database, tmp_path, mover)
    world.shop.command.kill_at(point, "run", "shop.yaml", nth=2)
    seen = world.bucket.visible("orders")
    world.shop.arrive(3001, 3500)
    world.shop.change(every=7, at=1)
    done = world.shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    assert set(seen) <= set(world.bucket.visible("orders"))
    compared = world.compared()
    assert compared.same, compared
    assert world.bucket.uploads() == []


def test_a_frozen_run_that_wakes_late_puts_nothing_in_twice(database: str, tmp_path: Path) -> None:
    """Frozen after its manifest, before its uploads are completed; another run finishes them and goes on."""
    world = BucketShop(database, tmp_path, "loop")
    text = (tmp_path / "shop.yaml").read_text().replace("lease_seconds: 30", "lease_seconds: 2")
    (tmp_path / "shop.yaml").write_text(text)
    with world.shop.command.frozen("run", "shop.yaml", point="files.manifest_linked", nth=2) as zombie:
        for _ in range(100):
            done = world.shop.command.run("run", "shop.yaml")
            if done.code != 4:  # the lease is not over yet
                break
        assert done.code == 0, done.err
        seen = world.bucket.visible("orders")
        zombie.go()
    zombie.end()
    assert world.bucket.visible("orders") == seen
    compared = world.compared()
    assert compared.same, compared
