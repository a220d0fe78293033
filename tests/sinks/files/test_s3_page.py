"""The pipeline files of the page on S3 are valid, and do what the page says; so does the pointer that it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import TOP, blocks
from tests.harness.versitygw import ACCESS_KEY, SECRET_KEY, gateway
from tests.sinks.files.buckets import Bucket

from penstock import config, sinks, sources
from penstock.core.slices import Kind
from penstock.ports import Context, NoProbe
from penstock.sinks.files import Options, build
from penstock.testing.contracts.delivery import after, deliver, table

PAGE = TOP / "docs" / "sinks" / "files-on-s3.md"


@pytest.mark.parametrize("number", [0, 1])
def test_the_files_of_the_page(number: int, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(blocks(PAGE, "yaml")[number].text)
    environment = {"DATABASE_URL": "postgresql://u@h/d", "S3_KEY": ACCESS_KEY, "S3_SECRET": SECRET_KEY}
    shop = config.load(path, environment=environment, sources=sources, sinks=sinks).pipelines["shop"]
    assert isinstance(shop.sink, Options)
    assert shop.sink.s3 is not None
    given = shop.sink.s3.model_dump(exclude_none=True)
    # The server knows neither the region nor the storage class; the bucket is this test's.
    given = {**given, **gateway().options}
    given.pop("storage_class", None)
    bucket = Bucket(gateway(), gateway().bucket(), prefix="penstock", s3=given)
    options: dict[str, Any] = {**bucket.options, "directory": f"s3://{bucket.name}/penstock"}
    streams: Any = shop.sink_streams
    sink = build(Options.model_validate(options), streams, Context("shop", str(tmp_path), NoProbe()))
    sink.connect()
    deliver(sink, after(None, stream="orders", pipeline="shop"), table(1))
    assert bucket.rows("orders") == [1]


def test_the_pointer_of_the_page() -> None:
    (shown,) = blocks(PAGE, "json")
    bucket = Bucket(gateway(), gateway().bucket())
    last = None
    for number in (1, 2):
        slice_ = after(last, stream="countries", pipeline="shop", kind=Kind.REFRESH)
        last = deliver(bucket.open(pipeline="shop"), slice_, table(number), attempt="1c45c528b46f")
    found, page = json.loads(bucket.get("countries/_current.json")), json.loads(shown.text)
    assert found.keys() == page.keys()
    assert {**found, "files": []} == {**page, "files": []}
    (file,) = page["files"]
    start, end = file.split("…")
    assert found["files"][0].startswith(start)
    assert found["files"][0].endswith(end)
