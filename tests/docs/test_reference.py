"""The reference pages name every key of the pipeline file and every verb and option of the command, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel
from tests.docs.pages import TOP, first_cells, headings, section

from penstock.cli import app
from penstock.config.models import FileKeys, PipelineKeys, Spark
from penstock.core.sizes import size
from penstock.errors import ConnectionFailed, InputError, LeaseLost, PipelineHeld, StreamFailed
from penstock.lake.options import CatalogOptions
from penstock.lake.upkeep.options import (
    OrphanOptions,
    RetentionOptions,
    SnapshotOptions,
    TombstoneOptions,
    UpkeepOptions,
)
from penstock.sinks import files
from penstock.sinks import lake as lake_sink
from penstock.sinks.files.options import PartitionBy
from penstock.sources import lake as lake_source
from penstock.sources import postgres

CONFIGURATION = TOP / "docs" / "configuration.md"
COMMANDS = TOP / "docs" / "commands.md"

MODELS: dict[str, type[BaseModel]] = {
    "The top of the file": FileKeys,
    "spark": Spark,
    "A pipeline": PipelineKeys,
    "Source postgres": postgres.Options,
    "Streams of postgres": postgres.StreamOptions,
    "Sink files": files.Options,
    "Streams of files": files.StreamOptions,
    "partition_by": PartitionBy,
    "Source lake": lake_source.Options,
    "Streams from lake": lake_source.StreamOptions,
    "Sink lake": lake_sink.Options,
    "Streams into lake": lake_sink.StreamOptions,
    "catalog": CatalogOptions,
    "upkeep": UpkeepOptions,
    "upkeep.snapshots": SnapshotOptions,
    "upkeep.orphans": OrphanOptions,
    "upkeep.retention": RetentionOptions,
    "upkeep.tombstones": TombstoneOptions,
}


def plain(cell: str) -> str:
    return cell.strip("`")


def rows(text: str) -> dict[str, str]:
    """First and second column of a section's table of keys."""
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE))


# ---------------------------------------------------------------- the pipeline file


@pytest.mark.parametrize("heading", MODELS)
def test_every_key_is_documented_and_no_other(heading: str) -> None:
    fields = MODELS[heading].model_fields
    known = [field.alias or name for name, field in fields.items()]
    assert [plain(cell) for cell in first_cells(section(CONFIGURATION, heading))] == known


@pytest.mark.parametrize("heading", MODELS)
def test_defaults_are_documented_as_they_are(heading: str) -> None:
    documented = rows(section(CONFIGURATION, heading))
    for name, field in MODELS[heading].model_fields.items():
        said = documented[field.alias or name]
        if field.is_required():
            assert said == "required", name
        elif isinstance(field.default, bool):
            assert plain(said) == str(field.default).lower(), name
        elif isinstance(field.default, str | int | float):
            assert same(plain(said), field.default), name
        else:
            assert not said.startswith(("required", "`")) or said.startswith("`local["), name


def same(said: str, default: str | float) -> bool:
    return said == default if isinstance(default, str) else float(size(said)) == default


def test_every_model_of_options_is_here() -> None:
    """A source or sink that is new must get its sections."""
    from penstock import sinks, sources

    modules = [room.load(type_) for room in (sources, sinks) for type_ in room.TYPES]
    offered = {model for module in modules for top in (module.Options, module.StreamOptions) for model in within(top)}
    assert offered <= set(MODELS.values())


def within(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and those of the mappings inside of it."""
    yield model
    for field in model.model_fields.values():
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from within(inner)


# ---------------------------------------------------------------- the command


def verbs() -> Iterator[tuple[str, Any]]:
    """Every command and group but the top, by its words."""

    def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        for name, inner in getattr(command, "commands", {}).items():
            yield f"{words} {name}", inner
            yield from below(f"{words} {name}", inner)

    return below("penstock", typer.main.get_command(app))


VERBS = dict(verbs())


def test_every_verb_has_its_section_and_no_other_has() -> None:
    assert {heading for heading in headings(COMMANDS) if heading.startswith("penstock ")} == set(VERBS)


@pytest.mark.parametrize("words", VERBS)
def test_every_option_is_documented_and_no_other(words: str) -> None:
    text = section(COMMANDS, words)
    context = typer.Context(VERBS[words], info_name=words, help_option_names=["-h", "--help"])
    parameters = VERBS[words].get_params(context)
    known = {tuple(sorted(p.opts, reverse=True)) for p in parameters if p.param_type_name == "option"}
    documented = {tuple(sorted(re.findall(r"`(-[-\w]+)`", cell), reverse=True)) for cell in first_cells(text)}
    assert documented == known
    for argument in (p for p in parameters if p.param_type_name == "argument"):
        assert f"{argument.metavar}" in text


def test_exit_codes_are_those_of_the_errors() -> None:
    codes = {error.exit_code for error in (InputError, ConnectionFailed, PipelineHeld, LeaseLost, StreamFailed)}
    wanted = [*map(str, sorted({0} | codes)), "130, 143"]
    assert first_cells(section(COMMANDS, "Exit codes")) == wanted
    assert first_cells(section(TOP / "README.md", "Exit codes")) == wanted
