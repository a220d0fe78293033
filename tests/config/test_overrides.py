"""`--set KEY=VALUE`: merged onto the file, checked as strictly, and told apart from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.fakes import URL, FilesOptions, PostgresOptions, PostgresStream, load

from penstock.config import File
from penstock.errors import ConfigError

TWO = """\
store: a.db
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    streams: {orders: {cursor: id, unique: true}, "public.items":}
  "eu.west":
    source: {type: postgres, url: "${DATABASE_URL}", exclude: [a, b]}
    sink: {type: files, directory: eu}
"""


def source(file: File, name: str = "shop") -> PostgresOptions:
    options = file.pipelines[name].source
    assert isinstance(options, PostgresOptions)
    return options


def refused(folder: Path, *sets: str, text: str = TWO, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, folder, sets, **environment)
    assert "hunter2" not in str(caught.value)
    return caught.value.what.replace(str(folder / "shop.yaml"), "shop.yaml").splitlines()


def test_a_way_from_the_top_is_about_one_place(tmp_path: Path) -> None:
    file = load(TWO, tmp_path, ["pipelines.shop.source.schema=sales", "store=b.db", "spark.memory=2g"])
    assert (source(file).schema_, source(file, "eu.west").schema_) == ("sales", "public")
    assert (file.store, file.spark.memory) == ("b.db", "2g")


def test_a_way_from_a_pipeline_is_about_every_pipeline(tmp_path: Path) -> None:
    file = load(TWO, tmp_path, ["source.schema=sales", "slice_bytes=1MiB"])
    assert [source(file, name).schema_ for name in file.pipelines] == ["sales", "sales"]
    assert [pipeline.slice_bytes for pipeline in file.pipelines.values()] == [1 << 20, 1 << 20]


@pytest.mark.parametrize("quote", ['"', "'"])
def test_names_with_dots_are_put_in_quotes(tmp_path: Path, quote: str) -> None:
    sets = [
        f"pipelines.{quote}eu.west{quote}.source.timeout=7",
        f"streams.{quote}public.items{quote}.cursor=n",
        f"spark.config.{quote}spark.ui.enabled{quote}=false",
    ]
    file = load(TWO, tmp_path, sets)
    assert source(file, "eu.west").timeout == 7
    assert file.pipelines["shop"].source_streams["public.items"] == PostgresStream(cursor="n")
    assert file.spark.config == {"spark.ui.enabled": "false"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sales", "sales"),
        (" sales ", "sales"),
        ("'5'", "5"),
        ('"a b"', "a b"),
        ("a: b #c", "a: b #c"),
        ("*x", "*x"),
        ("a=b", "a=b"),
        ("@x", "@x"),
        ("- x", "- x"),
        ("${NAME}", "eu"),
        ("x${NONE:-y}", "xy"),
        ("$${NAME}", "${NAME}"),
        ("${file:name}", "west"),
    ],
)
def test_texts(tmp_path: Path, written: str, meant: str) -> None:
    (tmp_path / "name").write_text("west\n")
    assert source(load(TWO, tmp_path, [f"source.schema={written}"], NAME="eu")).schema_ == meant


def test_values_of_other_types(tmp_path: Path) -> None:
    sets = [
        "source.timeout=7",
        "source.verify=false",
        "source.exclude=[x, 'y z']",
        "streams.orders.partition_by={column: day, by: month}",
        "streams.orders.lag=",
        "lease_seconds=${LEASE}",
    ]
    shop = load(TWO, tmp_path, sets, LEASE="2.5").pipelines["shop"]
    assert isinstance(shop.source, PostgresOptions)
    assert (shop.source.timeout, shop.source.verify, shop.source.exclude) == (7, False, ("x", "y z"))
    assert shop.sink_streams["orders"].model_dump() == {"partition_by": {"column": "day", "by": "month"}}
    assert shop.lease_seconds == 2.5


def test_they_are_merged_in_their_order(tmp_path: Path) -> None:
    sets = ["source.timeout=7", "source.timeout=8", "sink={type: files, directory: x}", "sink.format=csv"]
    shop = load(TWO, tmp_path, sets).pipelines["shop"]
    assert isinstance(shop.source, PostgresOptions)
    assert shop.source.timeout == 8
    assert shop.sink == FilesOptions(directory="x", format="csv")


def test_the_file_itself_stays_as_it_is(tmp_path: Path) -> None:
    load(TWO, tmp_path, ["source.schema=sales"])
    assert (tmp_path / "shop.yaml").read_text() == TWO


def test_what_is_overridden_need_not_be_right_in_the_file(tmp_path: Path) -> None:
    text = TWO.replace("${DATABASE_URL}", "${NOT_SET}")
    assert source(load(text, tmp_path, [f"source.url={URL}"])).url.get_secret_value() == URL
    text = TWO.replace('"${DATABASE_URL}"', "5")
    assert source(load(text, tmp_path, [f"source.url={URL}"])).url.get_secret_value() == URL


def test_a_stream_is_that_of_the_pipelines_that_list_it(tmp_path: Path) -> None:
    file = load(TWO, tmp_path, ["streams.orders.cursor=n"])
    assert file.pipelines["shop"].source_streams["orders"] == PostgresStream(cursor="n", unique=True)
    assert file.pipelines["eu.west"].source_streams == {}


def test_a_stream_or_pipeline_can_be_added_as_a_whole(tmp_path: Path) -> None:
    sets = [
        "pipelines.shop.streams.new={cursor: id}",
        f"pipelines.more={{source: {{type: postgres, url: '{URL}'}}, sink: {{type: files, directory: x}}}}",
        "pipelines.more.slice_bytes=5",
    ]
    file = load(TWO, tmp_path, sets)
    assert list(file.pipelines["shop"].source_streams) == ["orders", "public.items", "new"]
    assert file.pipelines["more"].slice_bytes == 5


EXPECTED = "expected a key and a value; write KEY=VALUE, for example --set source.schema=sales"
TOP = (
    "history, lease_seconds, on_failure, on_success, pipelines, receiver, sink, slice_bytes, source, spark, spools, "
    "store, streams"
)
NOT_TEXT = "expected a string, not a mapping (a name with dots needs quotes: "
EXCLUDE = 'pipelines."eu.west".source.exclude'
ADD = "To add one: --set pipelines"
WRONG = [
    ("pipelines.shop.source.shcema=x", "pipelines.shop.source.shcema: unknown key; did you mean 'schema'?"),
    ("pipelines.shop.source.timeout=soon", "pipelines.shop.source.timeout: expected a whole number, not 'soon'"),
    ("pipelines.shop.slice_bytes=0", "pipelines.shop.slice_bytes: expected greater than 0, not 0"),
    ("pipelines.shop.sink={type: files}", "pipelines.shop.sink.directory: required key is missing"),
    (
        "pipelines.shop.sink.type=fils",
        "pipelines.shop.sink.type: unknown sink type 'fils'; did you mean 'files'? Known: files",
    ),
    ("stroe=x", "stroe: unknown key; did you mean 'store'?"),
    ("sauce.schema=x", "sauce: unknown key; did you mean 'source'?"),
    ("zzz=x", f"zzz: unknown key; keys of a file and of a pipeline: {TOP}"),
    ("store=", "store: expected a string, not nothing; give it a value"),
    ("store=${NONE}", "store: environment variable NONE is not set; set it, or write ${NONE:-default}"),
    (
        "store=${file:none}",
        "store: file FOLDER/none does not exist; put a value into the file, or write ${file:none:-default}",
    ),
    ("spark.memory.x=1", f'spark.memory: {NOT_TEXT}"memory.x")'),
    ("spark.config.spark.ui.enabled=false", f'spark.config.spark: {NOT_TEXT}"spark.ui.enabled")'),
    ("store.x=1", "store.x: store is not a mapping"),
    (f"{EXCLUDE}.0=x", f"{EXCLUDE}.0: {EXCLUDE} is a list, which can only be set as a whole"),
    (
        "pipelines.shp.source.schema=x",
        "pipelines.shp.source.schema: the file has no pipeline 'shp'; did you mean 'shop'? " + ADD + ".shp={…}",
    ),
    (
        "streams.ordres.cursor=x",
        "pipelines.shop.streams.ordres.cursor: the file has no stream 'ordres'; did you mean 'orders'? "
        + ADD
        + ".shop.streams.ordres={…}",
    ),
]


@pytest.mark.parametrize(("written", "message"), WRONG, ids=[written for written, _ in WRONG])
def test_a_mistake_in_an_override_names_it_instead_of_a_line(tmp_path: Path, written: str, message: str) -> None:
    (line,) = refused(tmp_path, written)
    assert line == f"--set {written.partition('=')[0]}=…: {message.replace('FOLDER', str(tmp_path))}"


def test_a_value_that_is_not_valid_yaml(tmp_path: Path) -> None:
    assert refused(tmp_path, "pipelines.shop.source={type: postgres") == [
        "--set pipelines.shop.source=…: the '{' at column 1 is never closed: '}' is missing; "
        "a quoted value is used as it is"
    ]


@pytest.mark.parametrize(
    "written",
    ["foo", "foo.bar", "", "=", "=x", ".a=b", "a.=b", "a..b=c", "a b=c", "pipelines.a/b={}", '"a=b', "a[0]=b"],
)
def test_an_override_that_is_none(tmp_path: Path, written: str) -> None:
    (line,) = refused(tmp_path, written)
    assert line.startswith(f"--set {written[:1] if written[:1] == 'f' else ''}")
    assert line.endswith(EXPECTED)


def test_mistakes_of_the_file_and_of_overrides_are_told_together(tmp_path: Path) -> None:
    text = TWO.replace("store: a.db", "stroe: a.db")
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path, ["source.shcema=x", "foo", "pipelines.shop.source.timeout=x"])
    path = tmp_path / "shop.yaml"
    assert caught.value.what.splitlines() == [
        f"5 mistakes in {path} and --set",
        f"{path}:1: stroe: unknown key; did you mean 'store'?",
        "--set source.shcema=…: pipelines.\"eu.west\".source.shcema: unknown key; did you mean 'schema'?",
        "--set source.shcema=…: pipelines.shop.source.shcema: unknown key; did you mean 'schema'?",
        f"--set foo: {EXPECTED}",
        "--set pipelines.shop.source.timeout=…: pipelines.shop.source.timeout: expected a whole number, not 'x'",
    ]
    assert caught.value.next_step == "correct the file and --set, then run again"


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "written",
    [
        f"source.url={SECRET}://x",
        f"source.ulr={SECRET}://x",
        f"source.timeout=${{{'S'}}}",
        f"source.url=[{SECRET}]",
        f"source.url={{{SECRET}: {SECRET}",
        f"postgresql://ann:{SECRET}@db/shop?sslmode=require",
        f"source.url:postgresql://ann:{SECRET}@db/shop",
        f"source.url.x={SECRET}",
        "source.exclude=[public]",
    ],
)
def test_secrets_are_not_shown(tmp_path: Path, written: str) -> None:
    assert SECRET not in "\n".join(refused(tmp_path, written, S=SECRET))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert refused(tmp_path, "store=\udcff") == ["--set store=…: store: not valid Unicode"]
    (line,) = refused(tmp_path, ".".join("a" * 500) + "=1")
    assert line.endswith("nested more than 20 levels deep")
    assert len(refused(tmp_path, "store=[" + "[" * 100_000)) == 1
