"""Prints what the store holds about pipelines, for `status`, `state` and `runs`. Creates and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from penstock import wiring
from penstock.cli.shared.engine_run import mark_describer
from penstock.cli.shared.render import print_json
from penstock.cli.shared.status_document import pipeline_document
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipelines, require_streams
from penstock.errors import filled
from penstock.links.processes import has_ended
from penstock.ports import Store

#: the document of one pipeline
Make = Callable[[File, str, Store, datetime], dict[str, Any]]
#: a document as text
Lines = Callable[[Mapping[str, Any], datetime, File], list[str]]


def print_from_store(
    path: str,
    pipelines: Sequence[str] | None,
    make: Make,
    text: Lines,
    *,
    sets: Sequence[str] | None,
    streams: Sequence[str] | None = None,
    as_json: bool,
    worker: bool = False,
) -> None:
    """Print a document for each pipeline, or for some of their streams; with `worker`, also the warm worker's."""
    file = wiring.load(path, sets or ())
    names = choose_pipelines(file, pipelines)
    now = wiring.SystemClock().now()
    missing = wiring.missing_store(file)
    documents = []
    if missing is None:
        with closing(wiring.open_store(file)) as store:
            documents = [make(file, name, store, now) for name in names]
        if streams:
            documents = _select_streams(documents, streams)
    status = _worker(file) if worker else None
    if as_json:
        whole = {"file": file.path, "pipelines": documents} | ({"worker": status} if worker else {})
        print_json(whole, indent=2)
    elif missing is not None:
        print(f"There is no store at {missing}: no pipeline of this file has run yet.")
        print(f"If the sink already holds slices, rebuild the store: penstock state recover {file.path}")
    else:
        print("\n".join(line for document in documents for line in text(document, now, file)))
    if status is not None and not as_json:
        from penstock.cli.shared.warm_worker import worker_lines

        print("\n".join(f"warm worker: {line}" for line in worker_lines(status)))


def status_document(file: File, name: str, store: Store, now: datetime) -> dict[str, Any]:
    """A pipeline's status document."""
    with closing(wiring.build_source(file, name)) as source:
        return pipeline_document(
            store,
            name,
            list(file.pipelines[name].source_streams),
            describe_mark=mark_describer(source),
            gone=has_ended,
            now=now,
            fill=lambda step, stream: filled(step, file.path, name if len(file.pipelines) > 1 else None, stream),
        )


def _worker(file: File) -> dict[str, Any] | None:
    if sys.platform != "linux":
        return None
    from penstock.warm.starting import status

    return status(file)


def _select_streams(documents: list[dict[str, Any]], streams: Sequence[str]) -> list[dict[str, Any]]:
    require_streams(streams, {stream["stream"] for document in documents for stream in document["streams"]})
    chosen = [
        document | {"streams": [stream for stream in document["streams"] if stream["stream"] in streams]}
        for document in documents
    ]
    return [document for document in chosen if document["streams"]]
