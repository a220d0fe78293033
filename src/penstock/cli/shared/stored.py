"""Reads the store for those who only look at it: nothing is made, nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from penstock import wiring
from penstock.cli.shared.pipelines import in_words
from penstock.cli.shared.standing import pipeline_document
from penstock.config import File
from penstock.config.choosing import chosen
from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError, filled
from penstock.ports import Store

Text = Callable[[Mapping[str, Any], datetime], list[str]]


def print_standing(
    path: str,
    pipelines: Sequence[str] | None,
    streams: Sequence[str] | None,
    *,
    sets: Sequence[str] = (),
    as_json: bool,
    text: Text,
    worker: bool = False,
) -> None:
    """Print what the store knows of pipelines, or of some of their streams; with `worker`, its warm worker too."""
    file = wiring.load(path, sets)
    names = chosen(file, pipelines)
    now = wiring.SystemClock().now()
    missing = wiring.missing_store(file)
    documents = []
    if missing is None:
        with closing(wiring.open_store(file)) as store:
            documents = [document_of(file, name, store, now) for name in names]
        if streams:
            documents = _of_streams(documents, streams)
    found = _worker(file) if worker else None
    if as_json:
        whole = {"file": file.path, "pipelines": documents} | ({"worker": found} if worker else {})
        print(json.dumps(whole, ensure_ascii=False, indent=2))
    elif missing is not None:
        print(f"There is no store at {missing}: nothing has run here yet.")
        print(f"If the sink already holds slices of it, rebuild the store: penstock state recover {file.path}")
    else:
        print("\n".join(line for document in documents for line in text(document, now)))
    if found is not None and not as_json:
        from penstock.cli.shared.workers import worker_lines

        print("\n".join(f"warm worker: {line}" for line in worker_lines(found)))


def document_of(file: File, name: str, store: Store, now: datetime) -> dict[str, Any]:
    """A pipeline's document."""
    source = wiring.build_source(file, name)
    try:
        return pipeline_document(
            store,
            name,
            list(file.pipelines[name].source_streams),
            words=in_words(source),
            gone=wiring.gone,
            now=now,
            fill=lambda step, stream: filled(step, file.path, name if len(file.pipelines) > 1 else None, stream),
        )
    finally:
        source.close()


def _worker(file: File) -> dict[str, Any] | None:
    import sys

    if sys.platform != "linux":
        return None
    from penstock.warm.starting import status

    return status(file)


def _of_streams(documents: list[dict[str, Any]], streams: Sequence[str]) -> list[dict[str, Any]]:
    known = {stream["stream"] for document in documents for stream in document["streams"]}
    for stream in streams:
        if stream not in known:
            raise InputError(
                f"no stream '{stream}' is known; {suggest(stream, known, 'streams')}",
                safe=UNTOUCHED,
                next_step="`penstock status FILE` lists them",
            )
    chosen = [
        document | {"streams": [stream for stream in document["streams"] if stream["stream"] in streams]}
        for document in documents
    ]
    return [document for document in chosen if document["streams"]]
