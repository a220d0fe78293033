"""The small snippets of the configuration page: secrets, overrides, an override's mistake, an editor's settings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.docs.pages import TOP, blocks

from penstock import wiring
from penstock.errors import ConfigError

PAGE = TOP / "docs" / "configuration.md"
URL = "postgresql://shop:secret@db:5432/shop"
SHOP = """
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://ann:else@db:5432/shop"}
    sink: {type: files, directory: out}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


SECRETS, OVERRIDES, MISTAKE, COMMENT, SETTINGS = (
    "url: ",
    "penstock run shop.yaml --set",
    "--set source.shcema",
    "# yaml-language-server",
    '{"yaml.schemas"',
)


def test_every_small_snippet_of_the_page_is_tried_here() -> None:
    tried = (SECRETS, OVERRIDES, MISTAKE, COMMENT, SETTINGS)
    assert [block for block in blocks(PAGE, "", "bash", "json") if not block.text.startswith(tried)] == []


def snippet(start: str) -> str:
    """The block of the page that begins so."""
    (found,) = [block.text for block in blocks(PAGE) if block.text.startswith(start)]
    return found


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file, and the secrets that the page names, below its folder."""
    monkeypatch.setenv("PGPASSWORD", "secret")
    for name, text in {"pg_password": "secret", "url": URL}.items():
        path = tmp_path / "secrets" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


def placed(text: str, file: Path) -> str:
    """With the folder of secrets where it is here."""
    return text.replace("/run/secrets", str(file.parent / "secrets"))


def test_every_way_to_give_a_secret_gives_it(file: Path) -> None:
    lines = snippet(SECRETS).splitlines()
    assert len(lines) == 3
    for line in lines:
        file.write_text(SHOP.replace('url: "postgresql://ann:else@db:5432/shop"', placed(line, file)))
        source = wiring.load(str(file)).pipelines["shop"].source
        assert source.model_dump()["url"].get_secret_value() == URL, line


def test_every_override_of_the_page_takes_effect(file: Path) -> None:
    plain = wiring.load(str(file))
    lines = snippet(OVERRIDES).splitlines()
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(placed(line, file))
        sets = [value for word, value in zip(words, words[1:], strict=False) if word == "--set"]
        for one in sets:
            assert wiring.load(str(file), [one]) != plain, one
        assert wiring.load(str(file), sets) != plain


def test_a_mistake_in_an_override_is_told_as_the_page_shows_it(file: Path) -> None:
    shown = snippet(MISTAKE).strip()
    with pytest.raises(ConfigError) as refused:
        wiring.load(str(file), ["source.shcema=sales"])
    assert shown in str(refused.value)


def test_the_lines_for_an_editor_name_the_schema(file: Path) -> None:
    line = snippet(COMMENT)
    file.write_text(line + SHOP)
    assert wiring.load(str(file)).pipelines
    (schema,) = json.loads(snippet(SETTINGS))["yaml.schemas"]
    assert line.strip().endswith(f"$schema={schema.removeprefix('./')}")
    assert (TOP / "docs" / schema).exists()
