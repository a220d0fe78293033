"""The JSON Schema: accepts what the loader accepts, and refuses what a reader of the page would refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.config.fakes import SINKS, SOURCES
from tests.config.test_likely_mistakes import LIKELY
from tests.config.test_load import FULL
from tests.docs.pages import PAGES, TOP, Block, blocks

from penstock import sinks, sources
from penstock.config.schema import schema

REAL = Draft202012Validator(schema(sources, sinks))
FAKE = Draft202012Validator(schema(SOURCES, SINKS))
EXAMPLES = sorted(path for folder in ("examples", "src") for path in (TOP / folder).rglob("*.yaml"))
#: the page on connectors shows a source of a third party, which is not installed here
BUILT_IN = [page for page in PAGES if page.name != "connectors.md"]
SNIPPETS = [block for page in BUILT_IN for block in blocks(page, "yaml") if "pipelines:" in block.text]

SHOP = """
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: %s}
    streams: {orders: {%s}}
"""


def problems(data: Any, validator: Draft202012Validator = REAL) -> list[str]:
    return [error.message for error in validator.iter_errors(data)]


def test_it_is_a_schema_of_its_draft() -> None:
    Draft202012Validator.check_schema(schema(sources, sinks))
    Draft202012Validator.check_schema(schema(SOURCES, SINKS))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize("block", SNIPPETS, ids=str)
def test_every_pipeline_file_of_the_pages_is_valid(block: Block) -> None:
    assert problems(yaml.safe_load(block.text)) == []


def test_everything_that_the_loader_s_own_tests_accept_is_valid() -> None:
    assert problems(yaml.safe_load(FULL), FAKE) == []


@pytest.mark.parametrize(
    ("sink", "stream"),
    [
        ("files, directory: out, target_file_size: 64MiB", "tiebreaker: id, cursor: n"),
        ("files, directory: out, target_file_size: 100000", "tiebreaker: [a, b], cursor: n"),
        ("files, directory: '${OUT}', format: '${FORMAT}', target_file_size: '${SIZE}'", "unique: '${UNIQUE}'"),
        ("lake", "mode: merge, key: [id], partition_by: [day(at)]"),
        ("lake, upkeep: {retention: {age: 90d}, snapshots: {keep_for: 3600}}", "into: x"),
        ("lake, upkeep: {retention: {age: 1h30m, size: 1.5 GB}, orphans: {older_than: '${AGE}'}}", "into: x"),
        ("lake, catalog: {type: jdbc, uri: '${CATALOG}', properties: {s3.endpoint: x}}", ""),
        ("'${SINK}'", "whatever: 5"),
    ],
)
def test_sizes_times_lists_and_variables_are_valid(sink: str, stream: str) -> None:
    assert problems(yaml.safe_load(SHOP % (sink, stream))) == []


@pytest.mark.parametrize(
    ("sink", "stream", "told"),
    [
        ("files", "", "'directory' is a required property"),
        ("fils", "", "'fils' is not valid under any of the given schemas"),
        ("files, directory: 5", "", "5 is not of type 'string'"),
        ("files, directory: out, formt: csv", "", "('formt' was unexpected)"),
        ("files, directory: out, format: json", "", "'json' is not valid under any of the given schemas"),
        ("files, directory: out, target_file_size: 5", "", "5 is not valid under any of the given schemas"),
        ("files, directory: out, target_file_size: 64M", "", "'64M' is not valid under any of the given schemas"),
        ("files, directory: out", "mode: merge", "('mode' was unexpected)"),
        ("files, directory: out", "unique: 'yes'", "'yes' is not valid under any of the given schemas"),
        ("files, directory: out", "partition_by: {column: a}", "is not of type 'array'"),
        ("lake", "partition_by: {column: a, by: day}", "is not of type 'array'"),
        ("lake, catalog: {type: hadoop}", "", "'hadoop' is not valid under any of the given schemas"),
        ("lake, upkeep: {orphans: {older_than: a week}}", "", "'a week' is not valid under any of the given schemas"),
    ],
)
def test_typical_mistakes_are_not(sink: str, stream: str, told: str) -> None:
    (only,) = problems(yaml.safe_load(SHOP % (sink, stream)))
    assert only.endswith(told)


#: mistakes that are in no value: YAML, variables, files, addresses, and keys that do not go together
UNSEEN = {
    *("key written twice", "hash in a value", "misspelt variable", "password with @"),
    *("variable that is not set, inside an address", "variable that is not closed", "variable as a shell writes it"),
    *("file of a secret that is missing", "address of something else", "column named twice"),
}


@pytest.mark.parametrize("likely", LIKELY, ids=lambda likely: likely.name)
def test_likely_mistakes_that_are_in_the_data_are_seen_by_an_editor_too(likely: Any) -> None:
    try:
        data = yaml.safe_load(likely.text)
    except yaml.YAMLError:
        return  # the editor's own parser tells
    seen = bool(problems(data)) or likely.name == "yes for true"  # PyYAML takes it for true; an editor does not
    assert seen != (likely.name in UNSEEN)


def test_every_key_has_a_description_and_every_default_its_value() -> None:
    made = schema(sources, sinks)
    mappings = [made, *made["$defs"].values()]
    for mapping in mappings:
        for name, value in mapping.get("properties", {}).items():
            assert "description" in value or (name == "type" and value == {}), name
    orders = made["$defs"]["stream.postgres.lake"]["properties"]
    assert orders["nulls"]["default"] == "fail"
    assert made["$defs"]["sink.files"]["properties"]["target_file_size"]["default"] == "128MiB"
    assert made["$defs"]["sink.lake.SnapshotOptions"]["properties"]["keep_for"]["default"] == "5d"
