"""Every fenced block of the pages is carried out by a test, or it is listed here why not.

A block that is new and in neither list fails: give it to a test, or say why it cannot be run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, TOP, Block, blocks

#: a test, the pages that it carries out, and in which languages; `plain`: blocks that name none
CARRIED_OUT = {
    "tests/api/test_pages.py::test_every_snippet_of_the_page_is_run": {"docs/python.md": "python"},
    "tests/api/test_pages.py::test_the_page_shows_the_examples_as_they_are": {
        "docs/orchestration.md": "text yaml",
    },
    "tests/contracts/test_example_connector.py::test_a_pipeline_finds_it_by_its_entry_point": {
        "docs/connectors.md": "yaml",
    },
    "tests/contracts/test_example_connector.py::test_the_page_shows_the_example_as_it_is": {
        "docs/connectors.md": "python toml",
    },
    "tests/docs/test_configuration_page.py::test_every_small_snippet_of_the_page_is_tried_here": {
        "docs/configuration.md": "bash json plain",
    },
    "tests/docs/test_pages.py::test_every_pipeline_file_in_the_pages_loads": {"docs/configuration.md": "yaml"},
    "tests/cli/test_quarantine.py::test_the_commands_of_the_page": {"docs/sinks/postgres.md": "bash"},
    "tests/cli/test_import.py::test_the_commands_of_the_page": {"docs/import-rustream.md": "bash"},
    "tests/docs/test_drift_page.py::test_files_with_different_columns_are_read_as_the_page_says": {
        "docs/drift.md": "python",
    },
    "tests/docs/test_drift_page.py::test_the_pipeline_file_has_every_policy": {"docs/drift.md": "yaml"},
    "tests/docs/test_gallery.py::test_the_page": {"docs/state-tables.md": "yaml console"},
    "tests/docs/test_recipes.py::test_every_recipe_has_its_test": {"docs/recipes.md": "console sql text yaml"},
    "tests/docs/test_recipes.py::test_the_roles_suffice": {"docs/roles.md": "sql"},
    "tests/docs/test_reference.py::test_the_page_is_what_the_command_says": {"docs/commands.md": "plain"},
    "tests/docs/test_rest_page.py::test_the_page_shows_the_example_as_it_is": {"docs/sources/rest.md": "yaml"},
    "tests/verify/test_lists.py::test_the_commands_of_the_page": {"docs/sources/rest.md": "console"},
    "tests/docs/test_shaping_page.py::test_the_page_is_carried_out": {"docs/shaping.md": "console python sql yaml"},
    "tests/docs/test_walks.py::test_the_commands_of_the_page_on_debugging": {"docs/debugging.md": "bash"},
    "tests/docs/test_walks.py::test_the_first_lake_of_the_page_on_catalogs": {"docs/catalogs.md": "console"},
    "tests/docs/test_walks.py::test_the_newest_version_by_spark_sql": {"docs/sinks/files.md": "sql"},
    "tests/docs/test_walks.py::test_the_pipeline_files_of_a_page": {
        "docs/sinks/files.md": "yaml",
        "docs/sinks/postgres.md": "yaml",
        "docs/sinks/lake.md": "yaml",
        "docs/sources/lake.md": "yaml",
        "docs/sources/postgres.md": "yaml",
        "docs/store.md": "yaml",
        "docs/upkeep.md": "yaml",
    },
    "tests/docs/test_walks.py::test_the_quickstart": {"docs/quickstart.md": "console python sql yaml"},
    "tests/docs/test_walks.py::test_the_readme": {"README.md": "console yaml"},
    "tests/sources/test_stripe.py::test_the_file_of_the_page": {"docs/sources/stripe.md": "yaml"},
    "tests/service/test_pages.py::test_from_curl_into_postgres": {"docs/receiver.md": "yaml console"},
    "tests/service/test_pages.py::test_the_commands_of_the_protocol": {"docs/http-protocol.md": "bash json"},
    "tests/sinks/files/test_s3_page.py::test_the_files_of_the_page": {"docs/sinks/files-on-s3.md": "yaml"},
    "tests/sinks/files/test_s3_page.py::test_the_pointer_of_the_page": {"docs/sinks/files-on-s3.md": "json"},
    "tests/sinks/http/test_page.py::test_the_file_of_the_page": {"docs/sinks/http.md": "yaml"},
    "tests/sinks/postgres/state/test_outbox.py::test_the_file_of_the_page": {"docs/sinks/postgres-state.md": "yaml"},
    "tests/sources/outbox/test_page.py::test_the_file_of_the_page": {"docs/sources/outbox.md": "yaml console"},
    "tests/sources/files/test_page.py::test_the_file_of_the_page": {"docs/sources/files.md": "yaml"},
    "tests/sources/wal/test_page.py::test_the_file_of_the_page": {"docs/sources/wal.md": "yaml"},
    "tests/lake/test_catalogs.py::test_what_the_page_shows_can_be_loaded_and_its_first_lake_run": {
        "docs/catalogs.md": "yaml",
    },
    "tests/lake/test_plain_readers.py::test_every_snippet_of_the_page_is_run": {"docs/reading-the-lake.md": "python"},
}
RUN = {
    (page, language.replace("plain", "")): test
    for test, pages in CARRIED_OUT.items()
    for page, languages in pages.items()
    for language in languages.split()
}

PIP = "pip downloads about a gigabyte, and needs a package index"
SCRIPTS = "scripts that take minutes; that they are there is tested, and a fresh machine runs them"

#: blocks that no test runs, by how they begin, and why
NOT_RUN = {
    ("README.md", "script/demo"): SCRIPTS,
    ("README.md", "script/setup"): SCRIPTS,
    ("CONTRIBUTING.md", "script/demo"): SCRIPTS,
    ("CONTRIBUTING.md", "testing  "): "a picture of the rooms; import-linter holds it",
    ("docs/connectors.md", ".venv/bin/pip install"): PIP,
    ("docs/install.md", "pip wheel"): PIP,
    ("docs/install.md", "python3 -m venv"): PIP,
    ("docs/install.md", ".venv/bin/pip install"): PIP,
    ("docs/install.md", ".venv/bin/python -m penstock.links.spark.jars"): "downloads; its names are tested",
    ("docs/quickstart.md", "script/setup"): SCRIPTS,
    ("docs/receiver.md", "program → HTTP"): "a picture of the way of a row",
    ("docs/sinks/files.md", "out/"): "a picture of a folder",
    ("docs/sinks/lake.md", "table shop.orders"): "a picture of a table",
    ("docs/sinks/lake.md", "table shop.customers"): "a picture of a table",
    (
        "docs/sources/postgres.md",
        "shop/orders: held back",
    ): "output only; tests/cli/test_held_back.py has such lines",
    ("docs/sources/rest.md", "stream  "): "output only; the snapshots in tests/cli/display have such lines",
    ("docs/upkeep.md", "shop.orders: retention:"): "output only; tests/lake/upkeep compares such lines",
}

BLOCKS = [block for page in PAGES for block in blocks(page)]


def place(block: Block) -> str:
    return str(block.page.relative_to(TOP))


def reasons(block: Block) -> list[str]:
    """Why a block counts as looked after."""
    found = [RUN[key]] if (key := (place(block), block.language)) in RUN else []
    known = NOT_RUN.items()
    return found + [why for (page, start), why in known if page == place(block) and block.text.startswith(start)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_run_or_it_is_said_why_not(block: Block) -> None:
    assert len(reasons(block)) == 1, f"{block}: {reasons(block) or 'no test runs it, and no reason is given'}"


def test_a_block_that_nobody_runs_is_found() -> None:
    page = TOP / "docs" / "store.md"
    assert reasons(Block(page, 1, "bash", "rm -rf /\n")) == []
    assert len(reasons(Block(page, 1, "yaml", "pipelines:\n"))) == 1


def test_nothing_is_listed_that_is_not_there() -> None:
    assert set(RUN) <= {(place(block), block.language) for block in BLOCKS}
    texts = [(place(block), block.text) for block in BLOCKS]
    unused = {key for key in NOT_RUN if not any(page == key[0] and text.startswith(key[1]) for page, text in texts)}
    assert unused == set()


@pytest.mark.parametrize("test", CARRIED_OUT)
def test_every_test_that_is_listed_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", Path(TOP / file).read_text(), re.MULTILINE)


def test_every_script_that_a_page_names_is_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"\bscript/(\w+)", page.read_text())}
    assert named >= {"demo", "test", "setup", "docs"}
    assert named <= {path.name for path in (TOP / "script").iterdir()}
