"""The example of the rest source, carried out against a list API in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from pyiceberg.catalog.sql import SqlCatalog
from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.harness.rest_server import RestServer

EXAMPLE = TOP / "examples" / "rest-to-lake.yaml"


def test_the_page_shows_the_example_as_it_is() -> None:
    (block,) = blocks(TOP / "docs" / "sources" / "rest.md", "yaml")
    assert yaml.safe_load(block.text) == yaml.safe_load(EXAMPLE.read_text())


def test_the_example_runs(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    with RestServer({"charges": {}, "customers": {}}, token="sk_test_secret") as server:
        command = Command(tmp_path, "loop", {"API_URL": server.url, "API_TOKEN": "sk_test_secret"})
        server.arrive("charges", 250)
        server.arrive("customers", 20)
        server.make("customers/cu_00000007/cards", 3)
        server.set_clock(server.now + 60)
        done = command.run("run", EXAMPLE.name)
        assert done.code == 0, done.err
        server.arrive("charges", 5)
        server.arrive("customers", 1)
        server.set_clock(server.now + 60)
        done = command.run("run", EXAMPLE.name)
        assert done.code == 0, done.err
        assert "sk_test_secret" not in done.out + done.err
        numbers = sorted(id_ for id_, _ in server.objects("charges"))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    try:
        charges, customers, cards = (
            catalog.load_table(f"billing.{name}").scan().to_arrow() for name in ("charges", "customers", "cards")
        )
    finally:
        catalog.close()
    assert sorted(charges.column("id").to_pylist()) == numbers
    assert {row["number"] for row in charges.select(["number"]).to_pylist()} == {str(n) for n in range(255)}
    assert customers.num_rows == 21
    assert cards.column("parent_id").to_pylist() == ["cu_00000007"] * 3
