"""Sources and sinks of third parties: loaded by their entry point, and listed wherever types are listed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import sinks, sources, wiring
from penstock.cli import app
from penstock.config.schema import schema
from penstock.errors import ConfigError


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink `queue` and a source `crm`, which borrow the options of built-in ones."""
    modules = {"penstock.sinks": ("queue", sinks.load("files")), "penstock.sources": ("crm", sources.load("postgres"))}

    def entry_points(*, group: str) -> list[Any]:
        name, module = modules[group]
        return [SimpleNamespace(name=name, load=lambda: module)]

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def test_they_are_loaded_and_listed(third_party: None) -> None:
    assert sinks.types() == sorted({*sinks.TYPES, "queue"})
    assert sources.types() == sorted({*sources.TYPES, "crm"})
    assert sinks.load("queue") is sinks.load("files")
    with pytest.raises(KeyError):
        sinks.load("crm")


def test_the_schema_has_their_keys(third_party: None) -> None:
    definitions = schema(sources, sinks)["$defs"]
    assert {"sink.queue", "source.crm", "stream.crm.queue"} <= definitions.keys()
    assert "directory" in definitions["sink.queue"]["properties"]


def test_a_mistake_and_init_name_them(third_party: None, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("pipelines: {shop: {source: {type: crn, url: x}, sink: {type: files, directory: out}}}\n")
    with pytest.raises(ConfigError, match=r"did you mean 'crm'\? Known: crm, files, "):
        wiring.load(str(file))
    ended = CliRunner().invoke(app, ["init", "postgresql://localhost/shop", "--sink", "carrier-pigeon", "--stdout"])
    assert (ended.exit_code, ", queue" in ended.output) == (2, True)
