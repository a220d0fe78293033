"""`penstock schema`: what a pipeline file may say, for editors and for people."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    example: Annotated[
        bool, typer.Option("--example", help="Instead, a pipeline file with every key explained, in YAML.")
    ] = False,
) -> None:
    """Print the JSON Schema of a pipeline file, so that an editor completes keys and marks mistakes.

    \b
    Examples:
      penstock schema > penstock.schema.json
      penstock schema --example

    With the YAML language server (VS Code and others), begin the pipeline file with the line
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
