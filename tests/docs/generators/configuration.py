"""`python -m tests.docs.generators.configuration [FOLDER]`: generates documentation from the configuration models.

Writes the JSON Schema, the annotated example and the tables of the configuration page. FOLDER is the top of the
repository; default: the current folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.generators.tables import fill_tables, models

from penstock import sinks, sources
from penstock.cli.schema import example_text, schema_text

SCHEMA = "docs/penstock.schema.json"
EXAMPLE = "examples/annotated.yaml"
PAGE = "docs/configuration.md"
COMMAND = "python -m tests.docs.generators.configuration"


def texts(top: Path) -> dict[str, str]:
    """The generated content of each file, by path."""
    page = fill_tables((top / PAGE).read_text(), models(sources, sinks))
    return {SCHEMA: schema_text(), EXAMPLE: example_text(), PAGE: page}


def main(top: Path) -> None:
    """Write the files whose content has changed."""
    for path, text in texts(top).items():
        if not (top / path).exists() or (top / path).read_text() != text:
            (top / path).write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
