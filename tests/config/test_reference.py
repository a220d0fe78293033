"""What is made from the models is up to date: the schema, the annotated example, the tables of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.config.fakes import SINKS, SOURCES
from tests.docs.generators import configuration as generated
from tests.docs.generators.tables import fill_tables, models, tables_in
from tests.docs.pages import TOP, blocks

from penstock import config, sinks, sources
from penstock.config.annotated import annotated
from penstock.config.keys import keys
from penstock.config.load import Registry
from penstock.config.models import StreamKeys
from penstock.errors import ConfigError

PAGE = TOP / generated.PAGE
URL = "postgresql://ann:hunter2@db/shop"
#: what the example's variables are
ENVIRONMENT = {"DATABASE_URL": URL, "REPLICA_URL": URL, "SALT": "a secret of some length"} | dict.fromkeys(
    (
        "API_KEY",
        "API_TOKEN",
        "CLIENT_ID",
        "CLIENT_SECRET",
        "S3_KEY",
        "S3_SECRET",
        "S3_TOKEN",
        "STRIPE_API_KEY",
        "USER_PASSWORD",
    ),
    "hunter2",
)


@pytest.mark.parametrize("path", [generated.SCHEMA, generated.EXAMPLE, generated.PAGE])
def test_what_is_made_from_the_models_is_up_to_date(path: str) -> None:
    assert (TOP / path).read_text() == generated.texts(TOP)[path], f"{path} is behind: .venv/bin/{generated.COMMAND}"


def test_the_command_writes_all_three(tmp_path: Path) -> None:
    for path in (generated.SCHEMA, generated.EXAMPLE, generated.PAGE):
        (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / generated.PAGE).write_text("# Keys\n\n<!-- keys: spark -->\n\n| old |\n\nBy hand.\n")
    generated.main(tmp_path)
    assert (tmp_path / generated.SCHEMA).read_text() == (TOP / generated.SCHEMA).read_text()
    assert (tmp_path / generated.EXAMPLE).read_text() == (TOP / generated.EXAMPLE).read_text()
    page = (tmp_path / generated.PAGE).read_text()
    assert "| `memory` | `1g` | heap size of the JVM" in page
    assert "old" not in page
    assert page.endswith("By hand.\n")


def test_every_mapping_of_a_file_has_its_table() -> None:
    """A source or sink that is new gets its sections, with markers. What two have in common stands once."""
    known = models(sources, sinks)
    shown = {known[name] for name in tables_in(PAGE.read_text())}
    assert shown == set(known.values())


def test_every_key_says_what_it_means_and_what_it_is_without_it() -> None:
    for name, model in models(sources, sinks).items():
        for key in keys(model):
            assert key.meaning, f"{name}: {key.name} needs a description"
            assert (
                key.meaning[:1].islower()
                or not key.meaning[:1].isalpha()
                or key.meaning.startswith(("Arrow", "OAuth", "SQL", "TLS", "URL"))
            ), key


def test_a_marker_that_names_nothing_is_refused() -> None:
    with pytest.raises(KeyError, match="sink fils"):
        fill_tables("<!-- keys: sink fils -->\n", models(sources, sinks))


# ---------------------------------------------------------------- the example


def uncommented(text: str) -> str:
    """With all keys that are switched off switched on."""
    return re.sub(r"^( *)#(?=[a-z_0-9]+:|-$)", r"\1", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("known", "into"), [(sources, sinks), (SOURCES, SINKS)], ids=["real", "fakes"])
@pytest.mark.parametrize("all_keys", [False, True])
def test_the_example_loads_as_it_is_and_with_every_key_switched_on(
    known: Registry, into: Registry, all_keys: bool, tmp_path: Path
) -> None:
    text = annotated(known, into).replace("url: text", f"url: {URL}")
    path = tmp_path / "annotated.yaml"
    path.write_text(uncommented(text) if all_keys else text)
    file = config.load(path, environment=ENVIRONMENT, sources=known, sinks=into)
    assert {pipeline.source_type for pipeline in file.pipelines.values()} == set(known.types())
    assert {pipeline.sink_type for pipeline in file.pipelines.values()} == set(into.types())


def test_the_example_has_every_key() -> None:
    text = uncommented((TOP / generated.EXAMPLE).read_text())
    for name, model in models(sources, sinks).items():
        for key in keys(model):
            assert re.search(rf"^ *{key.name}:", text, re.MULTILINE), f"{name}: {key.name}"


def test_the_example_changes_nothing_where_it_says_the_defaults(tmp_path: Path) -> None:
    """What is written as a default is the default."""
    path = TOP / generated.EXAMPLE
    file = config.load(
        path, environment={"DATABASE_URL": URL, "STRIPE_API_KEY": "hunter2"}, sources=sources, sinks=sinks
    )
    (shop,) = [each for each in file.pipelines.values() if each.source_type == "postgres"]
    source = sources.load("postgres")
    assert shop.source == source.Options(url=URL)
    assert shop.streams["orders"] == StreamKeys()
    assert shop.source_streams["orders"] == source.StreamOptions()
    sink = sinks.load("lake")
    (into,) = [each for each in file.pipelines.values() if each.sink_type == "lake"]
    assert into.sink == sink.Options()
    assert into.sink_streams["orders"] == sink.StreamOptions()


# ---------------------------------------------------------------- what the page shows


def test_the_overrides_of_the_page_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text((TOP / "examples" / "postgres-to-files.yaml").read_text())
    secret = tmp_path / "url"
    secret.write_text(URL)
    (block,) = blocks(PAGE, "bash")
    commands = [shlex.split(line.replace("/run/secrets/url", str(secret))) for line in block.text.splitlines()]
    assert len(commands) == 4
    for words in commands:
        sets = [value for option, value in zip(words, words[1:], strict=False) if option == "--set"]
        assert sets
        config.load(path, environment={"DATABASE_URL": URL}, sources=sources, sinks=sinks, sets=sets)


def test_the_secrets_of_the_page_are_filled_in(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    for name, text in (("pg_password", "hunter2\n"), ("url", URL)):
        (tmp_path / "secrets" / name).write_text(text)
    (block,) = [block for block in blocks(PAGE, "") if "url:" in block.text]
    for line in block.text.splitlines():
        address = line.removeprefix("url: ").strip('"').replace("/run/secrets", "secrets")
        path = tmp_path / "shop.yaml"
        path.write_text((TOP / "examples" / "postgres-to-files.yaml").read_text())
        environment = {"DATABASE_URL": URL, "PGPASSWORD": "hunter2"}
        file = config.load(path, environment=environment, sources=sources, sinks=sinks, sets=[f"source.url={address}"])
        assert "hunter2" in file.pipelines["shop"].source.url.get_secret_value()  # type: ignore[attr-defined]


def test_the_mistake_of_the_page_is_told_like_that(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text((TOP / "examples" / "postgres-to-files.yaml").read_text())
    (block,) = [block for block in blocks(PAGE, "") if block.text.startswith("--set")]
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment={"DATABASE_URL": URL}, sources=sources, sinks=sinks, sets=["source.shcema=sales"])
    assert str(caught.value).splitlines()[0] == block.text.strip()
