"""`penstock state show`: shows every stream's mark in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from penstock.config import File as PipelineFile


def show(
    file: File,
    stream: Streams = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Show each stream's mark, described and as stored, with the rows delivered and the open slice.

    \b
    Examples:
      penstock state show shop.yaml
      penstock state show shop.yaml --stream orders --json
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.shared.status_output import print_from_store, status_document

        names = [pipeline] if pipeline else None
        print_from_store(file, names, status_document, _text, sets=set_, streams=stream, as_json=as_json)


def _text(document: Mapping[str, Any], now: datetime, _file: PipelineFile) -> list[str]:
    import json

    from penstock.cli.shared.failures import is_failing
    from penstock.cli.shared.status_document import stream_lines

    lines = []
    for stream in sorted(document["streams"], key=is_failing, reverse=True):
        lines += stream_lines(f"{document['pipeline']}/{stream['stream']}", stream, now)
        if stream["slice"]:
            lines.append(f"  as stored: {json.dumps(stream['mark'], ensure_ascii=False)}")
            lines.append(f"  slice id: {stream['slice_id']}, version {stream['version']}")
    return lines or [f"{document['pipeline']}: no streams yet"]
