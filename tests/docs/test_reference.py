"""The reference pages name every key of the pipeline file and every verb and option of the command, and no others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer
from pydantic import BaseModel
from tests.docs.generators import commands as reference
from tests.docs.pages import PAGES, TOP, first_cells, headings, prose, section

from penstock.cli import app
from penstock.config.models import FileKeys, PipelineKeys, Spark, StreamKeys
from penstock.core.exits import DIFFERENT
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
from penstock.links.http.options import Auth, OAuth
from penstock.links.postgres.options import Tls
from penstock.links.s3 import S3Options
from penstock.shaping.options import Shape
from penstock.sinks import files, http
from penstock.sinks import lake as lake_sink
from penstock.sinks import postgres as postgres_sink
from penstock.sinks.http.options import Tls as HttpTls
from penstock.sources import files as files_source
from penstock.sources import lake as lake_source
from penstock.sources import outbox, postgres, rest, stripe, wal
from penstock.sources.files.options import CsvOptions
from penstock.sources.outbox.options import DirectTable, FanOutTable, MultiValueTable
from penstock.sources.postgres.options import Horizon
from penstock.sources.rest.change_options import Changes
from penstock.sources.rest.options import AccountField, Paging, Time, TimeRange

CONFIGURATION = TOP / "docs" / "configuration.md"
COMMANDS = TOP / "docs" / "commands.md"

MODELS: dict[str, type[BaseModel]] = {
    "The top of the file": FileKeys,
    "spark": Spark,
    "A pipeline": PipelineKeys,
    "Any stream": StreamKeys,
    "shape": Shape,
    "Source postgres": postgres.Options,
    "tls": Tls,
    "horizon": Horizon,
    "Streams of postgres": postgres.StreamOptions,
    "Source rest": rest.Options,
    "Source stripe": stripe.Options,
    "auth": Auth,
    "auth.oauth": OAuth,
    "account": AccountField,
    "time_range": TimeRange,
    "Streams of rest": rest.StreamOptions,
    "Streams of stripe": stripe.StreamOptions,
    "Source outbox": outbox.Options,
    "Streams of outbox": outbox.StreamOptions,
    "direct": DirectTable,
    "multi_value": MultiValueTable,
    "fan_out": FanOutTable,
    "Source files": files_source.Options,
    "Streams of a files source": files_source.StreamOptions,
    "csv": CsvOptions,
    "Source wal": wal.Options,
    "Streams of wal": wal.StreamOptions,
    "entities": wal.EntityOptions,
    "Fan-outs of entities": wal.FanOutOptions,
    "time": Time,
    "paging": Paging,
    "changes": Changes,
    "Sink files": files.Options,
    "Streams of files": files.StreamOptions,
    "Sink http": http.Options,
    "tls of http": HttpTls,
    "Streams of http": http.StreamOptions,
    "Source lake": lake_source.Options,
    "Streams from lake": lake_source.StreamOptions,
    "Sink postgres": postgres_sink.Options,
    "Streams into postgres": postgres_sink.StreamOptions,
    "Sink lake": lake_sink.Options,
    "Streams into lake": lake_sink.StreamOptions,
    "catalog": CatalogOptions,
    "s3 of files": S3Options,
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
        if text := (field.description or "").partition("; default: ")[2]:
            assert said == text, name
        elif field.is_required():
            assert said == "required", name
        elif isinstance(field.default, bool):
            assert plain(said) == str(field.default).lower(), name
        elif isinstance(field.default, str | int | float):
            assert same(plain(said), field.default), name
        else:
            assert not said.startswith(("required", "`")), name


def same(said: str, default: str | float) -> bool:
    if isinstance(default, str):
        return said == default
    return float(said if "." in said else size(said)) == default


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


VERBS = dict(reference.verbs(app))


def test_the_page_is_what_the_command_says() -> None:
    text = COMMANDS.read_text()
    assert reference.page(text, app) == text, "the command has changed: script/docs --generate"


def test_every_verb_has_its_section_and_no_other_has() -> None:
    assert [heading for heading in headings(COMMANDS) if heading.split()[0] == "penstock"] == list(VERBS)


@pytest.mark.parametrize("words", VERBS)
def test_every_argument_and_option_is_explained(words: str) -> None:
    shown = reference.help_text(words, VERBS[words])
    for parameter in VERBS[words].params:
        if not parameter.hidden:
            assert parameter.help, parameter.name
            for option in parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or ""]:
                assert re.search(rf"^  .*{re.escape(option)}", shown, re.MULTILINE), option


@pytest.mark.parametrize("words", VERBS)
def test_a_section_names_every_option_and_the_first_one_explains_those_that_are_shared(words: str) -> None:
    shared = reference.shared_parameters(list(VERBS.values()))
    shown = reference.section_text(words, VERBS[words], shared)
    top = reference.section_text("penstock", VERBS["penstock"], shared)
    for parameter in VERBS[words].params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            assert max(parameter.opts, key=len) in shown
            first_words = " ".join((parameter.help or "").split()[:3])
            assert first_words in shown + top, parameter.name


EXAMPLES = [(words, example) for words, command in VERBS.items() for example in reference.examples(command)]


@pytest.mark.parametrize(("words", "example"), EXAMPLES)
def test_every_example_is_a_command_of_its_verb(words: str, example: str) -> None:
    """Parsed, with all options converted and checked, but not carried out."""
    spoken = re.search(rf"{words}\b((?:'[^']*'|[^|>;&)'])*)", example)
    assert spoken
    rest = shlex.split(spoken[1], comments=True)
    VERBS[words].make_context(words, rest, help_option_names=["-h", "--help"])


def test_an_example_with_a_mistake_is_found() -> None:
    with pytest.raises(Exception, match="--strem"):
        test_every_example_is_a_command_of_its_verb("penstock run", "penstock run shop.yaml --strem orders")


def test_every_verb_that_does_something_has_examples() -> None:
    without = {words for words, command in VERBS.items() if not hasattr(command, "commands")}
    assert without - {words for words, _ in EXAMPLES} <= {"penstock version"}


def test_what_is_written_by_hand_stays() -> None:
    inner = typer.Typer(rich_markup_mode=None)
    inner.command("old", short_help="It is old.")(lambda: None)
    inner.command("new", short_help="It is new.")(lambda: None)
    before = "# Top\n\nBy hand.\n\n## penstock old\n\nA note.\n\n## penstock gone\n\nNo.\n\n## Other\n\nStays.\n"
    after = reference.page(before, inner)
    assert after.startswith("# Top\n\nBy hand.\n\n## penstock\n")
    assert re.findall(r"^## (.+)$", after, re.MULTILINE) == ["penstock", "penstock old", "penstock new", "Other"]
    assert "\n```\n\nA note.\n\n## penstock new" in after
    assert "  old  It is old.\n" in after
    assert reference.page(after, inner) == after


def test_exit_codes_are_those_of_the_errors() -> None:
    codes = {error.exit_code for error in (InputError, ConnectionFailed, PipelineHeld, LeaseLost, StreamFailed)}
    wanted = [*map(str, sorted({0, DIFFERENT} | codes)), "130, 143"]
    assert first_cells(section(COMMANDS, "Exit codes")) == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_verb_that_a_page_names_is_one(page: Path) -> None:
    """`state rewind` is none, however natural it sounds."""
    known = {words.removeprefix("penstock ") for words in VERBS}
    named = set(
        re.findall(r"`(?:penstock )?((?:state|quarantine|token|triggers|loads|wal(?: readers)?) [a-z]+)\b", prose(page))
    )
    assert named - known == set()
