"""`init` with a source type of a third party: whatever it can do is asked of it, nothing is guessed by its name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from pydantic import BaseModel
from tests.harness.doubles import MemorySource, Rows
from typer.testing import CliRunner, Result

from penstock import sources
from penstock.cli import app
from penstock.ports import Context


class Options(BaseModel):
    url: str


class StreamOptions(BaseModel):
    pass


class Undiscoverable:
    """A source that cannot list its streams."""

    def connect(self) -> None:
        return None

    def close(self) -> None:
        return None


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The type `memory`."""

    def build(options: Options, streams: Mapping[str, StreamOptions], context: Context) -> MemorySource:
        assert options.url == "memory://here"
        return MemorySource({"orders": Rows(), "kinds": Rows()})

    made = ModuleType("memory_source")
    vars(made).update(Options=Options, StreamOptions=StreamOptions, build=build)
    monkeypatch.setitem(sys.modules, "memory_source", made)
    monkeypatch.setattr(sources, "TYPES", {**sources.TYPES, "memory": "memory_source"})
    monkeypatch.setenv("MEMORY_URL", "memory://here")
    monkeypatch.chdir(tmp_path)
    return made


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="penstock")


def test_a_source_that_can_list_its_streams(module: ModuleType) -> None:
    done = penstock("init", "--source", "memory", "--url-env", "MEMORY_URL")
    assert done.exit_code == 0, done.output
    text = Path("penstock.yaml").read_text()
    pipeline = yaml.safe_load(text)["pipelines"]["memory"]
    assert pipeline["source"] == {"type": "memory", "url": "${MEMORY_URL}"}
    assert list(pipeline["streams"]) == ["orders", "kinds"]
    assert "memory://" not in text


def test_a_source_that_cannot(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "build", lambda *_: Undiscoverable())
    done = penstock("init", "memory://here", "--source", "memory")
    assert done.exit_code == 2
    assert "this source cannot list what it could give" in done.output
    assert not Path("penstock.yaml").exists()


def test_a_url_that_no_option_takes(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Options", StreamOptions)
    done = penstock("init", "memory://here", "--source", "memory")
    assert (done.exit_code, "a source of type memory has no option `url`" in done.output) == (2, True)
