"""Takes files that lie outside of docs/ into the site where a page links to them: examples, for one.

A page names such a file by its place in the repository, `../examples/cron.sh`, so that the link works on a code host
too. In the site the file lies at the same place below the top. A link to a file that is not there fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add what pages name."""
    top = Path(config["docs_dir"]).parent
    for page in files.documentation_pages():
        for path in _named(page, top):
            if files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(top / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let those links lead to the copies."""
    depth = page.file.src_uri.count("/")

    def led(link: re.Match[str]) -> str:
        return f"]({link[1][3:]}{link[2]})" if _leaves(link[1], link[2], depth) else link[0]

    return _LINK.sub(led, markdown)


def _named(page: File, top: Path) -> list[str]:
    """The files outside of docs/ that a page links to, by their place in the repository."""
    depth = page.src_uri.count("/")
    found = [path for up, path in _LINK.findall(page.content_string) if _leaves(up, path, depth)]
    return [path for path in found if (top / path).is_file()]


def _leaves(up: str, path: str, depth: int) -> bool:
    """Whether a link leads out of docs/, and not to a page: those are no part of the site."""
    return up.count("..") == depth + 1 and not path.endswith(".md")
