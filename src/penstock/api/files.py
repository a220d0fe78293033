"""The pipeline file that a caller means: a path with overrides, or a source given as a mapping."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import wiring
from penstock.config import File

#: the pipeline of a source that was given as a mapping
READ = "read"


def loaded(path: str | os.PathLike[str], overrides: Mapping[str, Any] | None) -> File:
    """A pipeline file, with values put in the place of its own; ConfigError lists every mistake."""
    # As JSON, which is YAML too: a text stays a text, whatever it looks like.
    sets = [f"{key}={_spelt(value)}" for key, value in (overrides or {}).items()]
    return wiring.load(os.fspath(path), sets)


def described(source: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> File:
    """A file for a source: its keys as a pipeline has them under `source`, and `streams` beside them."""
    options = dict(source)
    streams = options.pop("streams", None)
    pipeline: dict[str, Any] = {"source": options, "sink": {"type": "files", "directory": "unused"}}
    if streams is not None:
        pipeline["streams"] = streams
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder, "source.yaml")
        path.write_text(json.dumps({"pipelines": {READ: pipeline}}, indent=1))
        # Relative paths are the caller's.
        return replace(loaded(path, overrides), folder=os.getcwd())


def _spelt(value: Any) -> str:
    return value if isinstance(value, str) and "\n" not in value and value[:1] not in "[{\"'" else json.dumps(value)
