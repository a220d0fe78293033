"""The warehouse on a real S3 server: landing, reading, peeking, and everything that can be wrong with a bucket."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.postgres import free_port
from tests.lake.lake_runs import World, rows
from tests.s3 import ACCESS_KEY, SECRET_KEY, S3Server

from penstock.core.documents import canonical
from penstock.errors import ConnectionFailed, InputError
from penstock.lake.metadata import read_state

_numbers = itertools.count(1)

LakeWorld = Callable[..., World]


@pytest.fixture
def lake(s3_server: S3Server, tmp_path: Path) -> LakeWorld:
    """Makes a lake whose warehouse is a bucket of its own; the catalog is a file here."""

    def make(*, bucket: str | None = None, **properties: str | None) -> World:
        at = f"s3://{bucket}" if bucket else s3_server.bucket(f"lake-{next(_numbers)}")
        given = {
            **s3_server.properties,
            **{key.replace("__", ".").replace("_", "-"): v for key, v in properties.items()},
        }
        catalog = {"uri": "catalog.db", "properties": {key: value for key, value in given.items() if value is not None}}
        return World(tmp_path, {"warehouse": f"{at}/tables", "catalog": catalog})

    return make


def test_rows_land_on_s3_and_are_read_from_there(lake: LakeWorld) -> None:
    world, found = lake(), rows(1, 2, 3)
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3]
    found.arrive(4)
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3, 4]
    state = read_state(world.lake, "s")
    assert state is not None
    assert state.head > 0
    assert sorted(path.name for path in world.folder.iterdir()) == ["catalog.db", "out"]


def test_a_peek_on_s3_imports_no_pyiceberg(lake: LakeWorld) -> None:
    world = lake()
    world.land(rows(1))
    program = (
        "import json, sys\n"
        "from penstock.lake.options import LakeOptions\n"
        "from penstock.lake.metadata import read_state\n"
        "from penstock.lake.lake import Lake\n"
        "given = json.loads(sys.stdin.read())\n"
        "place = Lake.from_options(LakeOptions.model_validate(given), folder=sys.argv[1], pipeline='in')\n"
        "print(read_state(place, 's').head, 'pyiceberg' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(world.folder)],
        input=json.dumps(world.options),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout == "1 False\n"


def test_the_keys_may_come_from_the_environment(lake: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = lake(
        s3__access_key_id=None, s3__secret_access_key=None, s3__endpoint=None, s3__region=None
    )  # nothing but the environment
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", lake(bucket="any").lake.properties["s3.endpoint"])
    assert dict(world.lake.properties) == {}
    world.sink().connect()
    world.land(rows(1, 2))
    assert [row["key"] for row in world.export()] == [1, 2]


def test_no_secret_is_written_or_shown(lake: LakeWorld, s3_server: S3Server) -> None:
    world = lake()
    world.land(rows(1, 2))
    world.export()
    shown = [repr(message) for message in world.said] + [repr(world.lake), repr(world.sink().options)]
    shown += [canonical(link.position.content) for link in _links(world)]
    files = s3_server.files()
    for path in _objects(files, world.lake.warehouse.removeprefix("s3://")):
        with files.open_input_stream(path) as stream:
            shown.append(stream.read().decode("latin-1"))
    shown += [path.read_bytes().decode("latin-1") for path in world.folder.rglob("*") if path.is_file()]
    assert len(shown) > 10
    for text in shown:
        assert SECRET_KEY not in text
        assert ACCESS_KEY not in text


def _links(world: World) -> list[Any]:
    state = read_state(world.lake, "s")
    assert state is not None
    return list(state.links().values())


def _objects(files: Any, under: str) -> list[str]:
    from pyarrow import fs

    found = files.get_file_info(fs.FileSelector(under, recursive=True))
    return [each.path for each in found if each.type == fs.FileType.File]


# ---------------------------------------------------------------- what can be wrong


def test_a_missing_bucket_is_named_before_anything_is_read(lake: LakeWorld, s3_server: S3Server) -> None:
    world = lake(bucket="nowhere-at-all")
    with pytest.raises(InputError, match="there is no bucket 'nowhere-at-all' at http://127") as refused:
        world.sink().connect()
    assert "s3://nowhere-at-all/tables" in refused.value.next_step


def test_a_wrong_key_is_told_apart(lake: LakeWorld) -> None:
    world = lake()
    world.land(rows(1))
    wrong = World(world.folder, _with(world, {"s3.secret-access-key": "not-the-right-one"}))
    for ask in asks(wrong):
        with pytest.raises(ConnectionFailed, match=r"the bucket 'lake-\d+' at .* refuses access") as refused:
            ask()
        assert "s3.access-key-id" in refused.value.next_step
        assert "not-the-right-one" not in str(refused.value)


def test_a_server_that_does_not_answer(lake: LakeWorld) -> None:
    world = lake()
    world.land(rows(1))
    gone = World(world.folder, _with(world, {"s3.endpoint": f"http://127.0.0.1:{free_port()}"}))
    for ask in asks(gone):
        with pytest.raises(ConnectionFailed, match=r"the bucket 'lake-\d+' at http.* cannot be reached") as refused:
            ask()
        assert "s3.endpoint" in refused.value.next_step
        assert SECRET_KEY not in str(refused.value)


def test_a_document_that_is_gone_from_the_bucket(lake: LakeWorld, s3_server: S3Server) -> None:
    world = lake()
    world.land(rows(1))
    s3_server.files().delete_dir_contents(f"{world.lake.warehouse.removeprefix('s3://')}/in/s/metadata")
    with pytest.raises(InputError, match=r"names s3://lake-\d+/tables/in/s/metadata/.*, which cannot be read"):
        read_state(world.lake, "s")


def asks(world: World) -> list[Callable[[], object]]:
    return [lambda: world.sink().connect(), lambda: read_state(world.lake, "s")]


def _with(world: World, properties: dict[str, str]) -> dict[str, Any]:
    catalog = dict(world.options["catalog"])
    return {**world.options, "catalog": {**catalog, "properties": {**catalog["properties"], **properties}}}
