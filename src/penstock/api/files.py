"""Loads the pipeline file of a caller: a path with overrides, or a source given as a mapping."""

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

#: the name of the pipeline for a source given as a mapping
MAPPING_PIPELINE = "read"


def load_file(path: str | os.PathLike[str], overrides: Mapping[str, Any] | None) -> File:
    """Load a pipeline file with overrides; ConfigError lists every mistake."""
    # As JSON, which is also YAML: a string stays a string.
    sets = [f"{key}={_to_yaml(value)}" for key, value in (overrides or {}).items()]
    return wiring.load(os.fspath(path), sets)


def load_mapping(source: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> File:
    """Load a source given as a mapping: the keys of `source` in a pipeline file, plus `streams`."""
    options = dict(source)
    streams = options.pop("streams", None)
    pipeline: dict[str, Any] = {"source": options, "sink": {"type": "files", "directory": "unused"}}
    if streams is not None:
        pipeline["streams"] = streams
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder, "source.yaml")
        path.write_text(json.dumps({"pipelines": {MAPPING_PIPELINE: pipeline}}, indent=1))
        # Relative paths start in the caller's folder.
        return replace(load_file(path, overrides), folder=os.getcwd())


def _to_yaml(value: Any) -> str:
    return value if isinstance(value, str) and "\n" not in value and value[:1] not in "[{\"'" else json.dumps(value)
