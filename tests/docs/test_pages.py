"""The pages hang together: links lead somewhere, records have their form, pipeline files load, messages are real."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.docs.pages import PAGES, TOP, Block, anchor, blocks, headings, prose, section

from penstock import config, sinks, sources

DOCS = TOP / "docs"
RECORDS = sorted((DOCS / "decisions").glob("0*.md"))
EXAMPLES = sorted((TOP / "examples").rglob("*.yaml"))
_FUNCTION = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
#: but for the page whose pipeline needs a connector of its own: tests/contracts/test_example_connector.py runs it
SNIPPETS = [block for page in PAGES if page.name != "connectors.md" for block in blocks(page, "yaml")]


# ---------------------------------------------------------------- glossary


def test_the_glossary_is_short() -> None:
    """A word that needs an entry is a word that a reader has to learn: use the field's own terms instead."""
    entries = re.findall(r"^\| \*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(entries) < 30


# ---------------------------------------------------------------- links


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def broken(page: Path, link: str) -> str | None:
    """Why a link leads nowhere; None: it does not, or leaves the repository."""
    if "://" in link:
        return None
    place, _, name = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return f"there is no {place}"
    if name and name not in map(anchor, headings(target)):
        return f"{target.name} has no heading #{name}"
    return None


def test_a_broken_link_is_found() -> None:
    readme = TOP / "README.md"
    assert broken(readme, "docs/nowhere.md") == "there is no docs/nowhere.md"
    assert broken(readme, "docs/store.md#nothing") == "store.md has no heading #nothing"
    assert broken(readme, "docs/store.md#backups") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert {link: why for link in links(page) if (why := broken(page, link))} == {}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [TOP / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
    assert {page.relative_to(TOP) for page in DOCS.rglob("*.md") if page not in seen} == set()


def test_pictures_are_whole() -> None:
    pictures = sorted((DOCS / "pictures").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        assert root.get("viewBox")
        assert root.find("{http://www.w3.org/2000/svg}title") is not None


# ---------------------------------------------------------------- decision records


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_its_form(record: Path) -> None:
    text = record.read_text()
    assert re.match(rf"# {int(record.name[:4])}\. \S", text)
    assert re.search(r"^Status: (proposed|accepted|replaced by \S.*)$", text, re.MULTILINE)
    assert headings(record)[1:] == ["Context", "Decision", "Consequences"]


def test_records_are_numbered_and_listed() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))
    listed = links(DOCS / "decisions" / "README.md")
    assert listed == [record.name for record in RECORDS]


# ---------------------------------------------------------------- pipeline files


def load(path: Path) -> config.File:
    """With every variable that it names, whatever it is for."""
    named = re.findall(r"\$\{(\w+)", path.read_text())
    environment = dict.fromkeys(named, "postgresql://ann:secret@localhost:5432/shop")
    environment |= {name: "ann" for name in named if name.startswith("PG")}
    environment |= {
        name: "http://localhost:8000" for name in named if name in ("API_URL", "WEBHOOK_URL", "RECEIVER_URL")
    }
    return config.load(path, environment=environment, sources=sources, sinks=sinks)


@pytest.mark.parametrize("block", SNIPPETS, ids=str)
def test_every_pipeline_file_in_the_pages_loads(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(block.text)
    assert load(path).pipelines


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads(path: Path) -> None:
    assert load(path).pipelines


def test_the_readme_has_pipeline_files_of_ten_lines() -> None:
    assert [len(block.text.splitlines()) for block in blocks(TOP / "README.md", "yaml")] == [10, 10]


# ---------------------------------------------------------------- messages


def texts() -> Iterator[str]:
    """Every text in the code, with … where a value is filled in."""
    for path in (TOP / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)


def said(message: str, known: str) -> bool:
    """Whether a message, with … for what varies, is in one of the texts of the code."""
    pieces = [re.escape(piece) for piece in message.strip("… ").split("…")]
    return re.search(r"[^\0]*?".join(pieces), known) is not None


def quoted(text: str) -> list[str]:
    """The messages that tables quote in their first column."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    # A message may itself quote a key in backticks: the quotes of a message stand at spaces or at the cell's ends.
    return [found for row in rows for found in re.findall(r"(?:^|(?<=[ ,]))`(.+?)`(?=$|, `| and )", row)]


@pytest.fixture(scope="module")
def known() -> str:
    return "\0".join(texts())


QUOTING = {
    "debugging.md": prose(DOCS / "debugging.md"),
    "store.md": prose(DOCS / "store.md"),
    "sources/lake.md": section(DOCS / "sources" / "lake.md", "Messages, and what to do"),
}


@pytest.mark.parametrize("name", QUOTING)
def test_every_quoted_message_is_in_the_code(known: str, name: str) -> None:
    messages = [message for message in quoted(QUOTING[name]) if " " in message and "://" not in message]
    assert len(messages) > 8
    assert [message for message in messages if not said(message, known)] == []


def test_a_message_that_is_not_in_the_code_is_found(known: str) -> None:
    assert said("there is no table … in database …", known)
    assert not said("there is no tabel … in database …", known)


def test_every_test_that_a_page_names_is_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", prose(page))}
    written = {name for path in (TOP / "tests").rglob("test_*.py") for name in _FUNCTION.findall(path.read_text())}
    assert len(named) >= 8
    assert named - written == set()
