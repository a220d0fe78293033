"""What a correct file means."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.config.fakes import URL, FilesOptions, PostgresOptions, PostgresStream, load

from penstock import config, sinks, sources

FULL = """
store: state/store.db
spark: {master: "local[2,3]", memory: 2g, config: {spark.ui.enabled: false, spark.task.cpus: 1}}
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}", schema: sales}
    sink: {type: files, directory: out, format: csv}
    slice_bytes: 256MiB
    lease_seconds: 5
    streams:
      orders: {cursor: updated_at, tiebreaker: id, partition_by: {column: created_at, by: month}}
      items:
"""
SMALL = """
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: files, directory: out}}
    {more}
"""


def small(more: str = "", url: str = URL) -> str:
    return SMALL.format(url=url, more=more)


def test_everything_a_file_can_say(tmp_path: Path) -> None:
    file = load(FULL, tmp_path)
    assert (file.path, file.folder, file.store) == (
        str(tmp_path / "shop.yaml"),
        str(tmp_path),
        "state/store.db",
    )
    assert (file.spark.master, file.spark.memory) == ("local[2,3]", "2g")
    assert file.spark.config == {"spark.ui.enabled": "false", "spark.task.cpus": "1"}
    shop = file.pipelines["shop"]
    assert (shop.name, shop.source_type, shop.sink_type) == ("shop", "postgres", "files")
    assert (shop.slice_bytes, shop.lease_seconds) == (256 * 1024 * 1024, 5.0)
    assert isinstance(shop.source, PostgresOptions)
    assert shop.source.url.get_secret_value() == URL
    assert shop.sink == FilesOptions(directory="out", format="csv")


def test_a_stream_s_options_are_split_between_source_and_sink(tmp_path: Path) -> None:
    shop = load(FULL, tmp_path).pipelines["shop"]
    assert shop.source_streams == {
        "orders": PostgresStream(cursor="updated_at", tiebreaker=("id",)),
        "items": PostgresStream(),
    }
    assert shop.sink_streams["orders"].model_dump() == {"partition_by": {"column": "created_at", "by": "month"}}
    assert list(shop.sink_streams) == ["orders", "items"]


def test_defaults(tmp_path: Path) -> None:
    file = load(small(), tmp_path)
    shop = file.pipelines["shop"]
    assert file.store == ".penstock/store.db"
    assert (file.spark.master, file.spark.memory, file.spark.config) == (None, "1g", {})
    assert (shop.slice_bytes, shop.lease_seconds) == (256 * 1024 * 1024, 30.0)
    assert shop.source_streams == shop.sink_streams == {}


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1", 1),
        ("64 KiB", 65536),
        ("1.5MB", 1_500_000),
        ("2GB", 2_000_000_000),
        ("1tib", 1 << 40),
        ("'7'", 7),
    ],
)
def test_sizes(tmp_path: Path, written: str, size: int) -> None:
    assert load(small(f"slice_bytes: {written}"), tmp_path).pipelines["shop"].slice_bytes == size


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${NAME}", "sales"),
        ("a${NAME}b", "asalesb"),
        ("${NAME:-other}", "sales"),
        ("${NONE:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("$${NAME}", "${NAME}"),
        ("$NAME", "$NAME"),
        ("${NUMBER}", "5"),
    ],
)
def test_variables(tmp_path: Path, written: str, meant: str) -> None:
    file = load(small(f"streams: {{a: {{cursor: '{written}'}}}}"), tmp_path, NAME="sales", EMPTY="", NUMBER="5")
    assert file.pipelines["shop"].source_streams["a"] == PostgresStream(cursor=meant)


def test_a_variable_takes_the_type_of_its_field(tmp_path: Path) -> None:
    text = small('slice_bytes: "${SIZE}"\n    lease_seconds: ${LEASE}').replace(
        "postgres,", "postgres, timeout: '${TIMEOUT}', verify: '${VERIFY}', schema: '${TIMEOUT}',"
    )
    shop = load(text, tmp_path, SIZE="1MiB", LEASE="2.5", TIMEOUT="7", VERIFY="false").pipelines["shop"]
    assert isinstance(shop.source, PostgresOptions)
    assert (shop.slice_bytes, shop.lease_seconds) == (1 << 20, 2.5)
    assert (shop.source.timeout, shop.source.verify, shop.source.schema_) == (7, False, "7")


def test_anchors_and_merges(tmp_path: Path) -> None:
    text = f"""
pipelines:
  a:
    source: &db {{type: postgres, url: "{URL}", timeout: 3}}
    sink: {{type: files, directory: a}}
  b:
    source: {{<<: *db, timeout: 4}}
    sink: {{type: files, directory: b}}
"""
    file = load(text, tmp_path)
    timeouts = [p.source.timeout for p in file.pipelines.values() if isinstance(p.source, PostgresOptions)]
    assert timeouts == [3, 4]


@pytest.mark.parametrize("name", ["on", "no", "2024-01-01", "007", "1:30", "null", "~", "ördér", "public.orders"])
def test_names_are_text_whatever_they_spell(tmp_path: Path, name: str) -> None:
    assert list(load(small(f"streams: {{{name}: {{}}}}"), tmp_path).pipelines["shop"].source_streams) == [name]


def test_a_file_cannot_be_changed_and_does_not_show_secrets(tmp_path: Path) -> None:
    file = load("store: postgresql://x:hunter2@h/d\n" + small(), tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        file.store = "other"  # type: ignore[misc]  # that it cannot be set is the test
    with pytest.raises(ValidationError):
        file.spark.memory = "2g"
    assert "hunter2" not in repr(file)


def test_loading_a_small_file_is_quick(tmp_path: Path) -> None:
    load(FULL, tmp_path)
    fastest = min(_seconds(tmp_path) for _ in range(5))
    assert fastest < 0.025


def _seconds(folder: Path) -> float:
    before = time.perf_counter()
    load(FULL, folder)
    return time.perf_counter() - before


def test_the_example_is_accepted() -> None:
    path = Path(__file__).parents[2] / "examples" / "postgres-to-files.yaml"
    file = config.load(path, environment={"DATABASE_URL": URL}, sources=sources, sinks=sinks)
    shop = file.pipelines["shop"]
    assert (shop.source_type, shop.sink_type) == ("postgres", "files")
    assert list(shop.source_streams) == ["orders", "customers"]


@pytest.mark.parametrize(
    ("sink", "said", "size"),
    [
        ("{type: postgres, url: postgresql://db/x}", "", 128 << 20),
        ("{type: postgres, url: postgresql://db/x}", "slice_bytes: 1GiB", 1 << 30),
        ("{type: files, directory: out}", "", 256 << 20),
    ],
)
def test_a_sink_may_want_smaller_slices(tmp_path: Path, sink: str, said: str, size: int) -> None:
    text = (
        f"pipelines:\n  shop:\n    source: {{type: postgres, url: postgresql://db/x}}\n    sink: {sink}\n    {said}\n"
    )
    (tmp_path / "shop.yaml").write_text(text)
    file = config.load(str(tmp_path / "shop.yaml"), environment={}, sources=sources, sinks=sinks)
    assert file.pipelines["shop"].slice_bytes == size
