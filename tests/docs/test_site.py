"""The site builds strictly and without a network, holds every page, and loads nothing from another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import TOP

#: mkdocs in a process that cannot reach anyone
BUILD = """
import socket, sys

def refused(*_):
    raise SystemExit("the build wants the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""
#: what a browser fetches by itself, and by which attribute
FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}


def build(top: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BUILD, "build", "--strict", "--config-file", str(top / "mkdocs.yml"), "-d", str(site)],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    ended = build(TOP, place)
    assert ended.returncode == 0, ended.stdout
    return place


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages, to break."""
    shutil.copytree(TOP / "docs", tmp_path / "docs")
    shutil.copytree(TOP / "examples", tmp_path / "examples")
    shutil.copy(TOP / "mkdocs.yml", tmp_path)
    return tmp_path


class Fetched(HTMLParser):
    """The addresses that a page's browser would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.classes.update((known.get("class") or "").split())
        if address := known.get(FETCHED.get(tag, "")):
            self.addresses.append(address)


def outside(address: str) -> bool:
    return bool(re.match(r"(https?:)?//", address))


def in_nav(part: object) -> Iterator[str]:
    match part:
        case str():
            yield part
        case list():
            yield from (page for inner in part for page in in_nav(inner))
        case dict():
            yield from (page for inner in part.values() for page in in_nav(inner))


def test_every_page_is_in_the_navigation_once(site: Path) -> None:
    listed = re.search(r"^nav:\n(.*?)^(?=\S)", (TOP / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)
    assert listed
    pages = sorted(str(page.relative_to(TOP / "docs")) for page in (TOP / "docs").rglob("*.md"))
    assert sorted(in_nav(yaml.safe_load(listed[1]))) == pages
    for page in pages:
        assert (site / page.replace("README.md", "index.md")).with_suffix(".html").exists(), page


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = Fetched(page.read_text())
        assert fetched.addresses
        assert [address for address in fetched.addresses if outside(address)] == [], page
        # The theme would fetch the program that draws these.
        assert "mermaid" not in fetched.classes, page
    for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        found = re.findall(r"""(?:@import|url\(|href=)\s*["']?([^"')\s]+)""", sheet.read_text())
        assert [address for address in found if outside(address)] == [], sheet


def test_an_address_outside_is_recognised() -> None:
    page = '<script src="https://host/a.js"></script><link href="//host/b.css"><img src="c.svg"><a href="http://d">'
    assert [outside(address) for address in Fetched(page).addresses] == [True, True, False]


def test_an_example_that_a_page_links_to_is_there(site: Path) -> None:
    assert 'href="examples/annotated.yaml"' in (site / "configuration.html").read_text()
    assert (site / "examples" / "annotated.yaml").read_text() == (TOP / "examples" / "annotated.yaml").read_text()


def test_search_has_an_index_of_its_own(site: Path) -> None:
    assert "_ingest_seq" in (site / "search" / "search_index.json").read_text()


def test_a_build_that_wants_the_network_is_found_out() -> None:
    wants = BUILD.replace("from mkdocs.__main__ import cli\ncli(sys.argv[1:])", "socket.create_connection(('h', 1))")
    ended = subprocess.run([sys.executable, "-c", wants], capture_output=True, text=True)
    assert "the build wants the network" in ended.stderr


BROKEN = {
    "[a page](nowhere.md)": "'nowhere.md', but the target is not found",
    "[a heading](store.md#nowhere)": "does not contain an anchor '#nowhere'",
    "![a picture](pictures/nowhere.svg)": "'pictures/nowhere.svg', but the target is not found",
    "[outside of the pages](../README.md)": "'../README.md', but the target is not found",
    "[an example](../examples/nowhere.yaml)": "'examples/nowhere.yaml', but the target is not found",
}


def test_a_broken_link_fails_the_build(copy: Path) -> None:
    with (copy / "docs" / "quickstart.md").open("a") as page:
        page.write("\n\n" + "\n\n".join(BROKEN))
    ended = build(copy, copy / "site")
    assert f"Aborted with {len(BROKEN)} warnings in strict mode" in ended.stdout
    assert [complaint for complaint in BROKEN.values() if complaint not in ended.stdout] == []


def test_a_page_that_the_navigation_forgets_fails_the_build(copy: Path) -> None:
    (copy / "docs" / "forgotten.md").write_text("# Forgotten\n")
    ended = build(copy, copy / "site")
    assert ended.returncode != 0
    assert "forgotten.md" in ended.stdout
