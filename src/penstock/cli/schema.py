"""`penstock schema`: prints the JSON Schema of a pipeline file, or an annotated example."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    example: Annotated[
        bool, typer.Option("--example", help="Print a pipeline file with every key explained, in YAML.")
    ] = False,
) -> None:
    """Print the JSON Schema of a pipeline file, with which editors complete keys and mark mistakes.

    \b
    Examples:
      penstock schema > penstock.schema.json
      penstock schema --example

    With the YAML language server (VS Code and others), start the pipeline file with this line:
      # yaml-language-server: $schema=penstock.schema.json
    """
    print(example_text() if example else schema_text(), end="")


def schema_text() -> str:
    """The JSON Schema, with the built-in sources and sinks."""
    import json

    from penstock import sinks, sources
    from penstock.config.schema import schema as made

    return json.dumps(made(sources, sinks), indent=2, ensure_ascii=False) + "\n"


def example_text() -> str:
    """The annotated file, with the built-in sources and sinks."""
    from penstock import sinks, sources
    from penstock.config.annotated import annotated

    return annotated(sources, sinks)
