"""Anything the core may be given: documents, slices, messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis
from hypothesis import strategies as st
from tests.core.types import types

from penstock.core.content import Column, Content, Drift
from penstock.core.fetches import FetchCounts
from penstock.core.marks import Mark
from penstock.core.messages import (
    Catalog,
    CatalogStream,
    ConnectionStatus,
    Eof,
    Log,
    Message,
    MoverStatus,
    RowsRemaining,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
    WorkProgress,
)
from penstock.core.slices import Kind, Slice


def given(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis' own, without a deadline, which a busy machine would miss."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return hypothesis.settings(deadline=None, max_examples=60)(hypothesis.given(*strategies)(test))

    return decorate


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: names as people and databases make them, lone surrogates left out: no database can hold one
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**63)
moments = st.integers(-(2**35), 2**37).map(
    lambda seconds: EPOCH + timedelta(seconds=seconds, microseconds=seconds % 997)
)

scalars = st.none() | st.booleans() | st.integers() | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
documents = st.dictionaries(texts, values, max_size=5)
#: small ones: what a document may hold is for the documents' own tests
marks = st.dictionaries(
    st.sampled_from(["key", "n", "é"]), st.none() | st.integers(-3, 3) | st.sampled_from("abé")
).map(Mark.of)
#: what may travel as JSON in a message: floats too
jsons = st.dictionaries(st.sampled_from("ab"), scalars | st.floats(allow_nan=False, allow_infinity=False))

columns = st.builds(Column, names, types, st.none() | texts, st.none() | texts)
lists_of_columns = st.lists(columns, max_size=4).map(tuple)
contents = st.builds(
    Content,
    columns=lists_of_columns,
    changes=st.booleans(),
    key=st.lists(names, max_size=2).map(tuple),
    filter=st.none() | texts,
    identity=marks.map(lambda mark: mark.document),
    private=marks.map(lambda mark: mark.document),
    shape=st.none() | marks.map(lambda mark: mark.document),
    drift=st.none() | st.builds(Drift, lists_of_columns, st.lists(names, max_size=2).map(tuple)),
)
slices = st.builds(
    Slice,
    pipeline=names,
    stream=names,
    number=st.integers(1, 2**40),
    after=st.none() | marks,
    upto=st.none() | marks,
    content=marks.map(lambda mark: mark.text),
    previous=st.sampled_from(["", "ab" * 32, "cd" * 32]),
    kind=st.sampled_from(Kind),
)

catalog_streams = st.builds(
    CatalogStream,
    stream=names,
    kind=st.sampled_from(Kind).map(lambda kind: kind.value),
    primary_key=st.lists(names, max_size=3).map(tuple),
    order=st.lists(names, max_size=3).map(tuple),
    skipped=st.none() | texts,
)
maybe = st.none() | texts
state_changes = st.builds(
    StateChanged,
    ts=moments,
    stream=names,
    version=st.integers(1, 2**40),
    number=counts,
    slice_id=texts,
    mark=st.none() | marks.map(lambda mark: mark.text),
    reason=texts,
    rows=counts,
    bytes=counts,
    at=maybe,
)
shares = st.floats(0, 1)
fetches = st.builds(
    FetchCounts,
    records=counts,
    pages=counts,
    requests=counts,
    retries=counts,
    waited=st.floats(0, 1e9),
    seconds=st.floats(0, 1e9),
    begin=maybe,
    end=maybe,
    done=st.lists(st.tuples(shares, shares), max_size=3).map(tuple),
)

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Catalog, ts=moments, pipeline=names, run=texts, streams=st.lists(catalog_streams, max_size=3).map(tuple)),
    st.builds(
        StreamStatus,
        ts=moments,
        stream=names,
        status=st.sampled_from(Status),
        reason=maybe,
        safe=maybe,
        next_step=maybe,
        stopped=st.booleans(),
    ),
    st.builds(
        ConnectionStatus,
        ts=moments,
        side=st.sampled_from(["source", "sink"]),
        connected=st.booleans(),
        reason=maybe,
        safe=maybe,
        next_step=maybe,
    ),
    st.builds(MoverStatus, ts=moments, program=texts, ready=st.booleans()),
    st.builds(
        StepDone,
        ts=moments,
        stream=names,
        step=st.sampled_from(["gather", "intend", "move", "seal", "commit"]),
        number=counts,
        rows=st.none() | counts,
        bytes=st.none() | counts,
        parts=st.none() | counts,
        resumed=st.booleans(),
    ),
    st.builds(
        RowsRemaining,
        ts=moments,
        stream=names,
        rows=st.none() | counts,
        exact=st.booleans(),
        held_back=st.none() | counts,
        blocker=maybe,
        horizon=maybe,
        proven=st.none() | st.booleans(),
    ),
    st.builds(
        WorkProgress,
        ts=moments,
        stream=names,
        doing=texts,
        done=st.none() | counts,
        total=st.none() | counts,
        fetched=st.none() | fetches,
    ),
    state_changes,
    st.builds(Log, ts=moments, level=texts, text=texts, stream=maybe),
    st.builds(
        Eof,
        ts=moments,
        status=texts,
        exit_code=st.integers(0, 255),
        has_more=st.booleans(),
        reason=maybe,
        safe=maybe,
        next_step=maybe,
        ending_state=jsons,
        run_progress=jsons,
        request_progress=jsons,
        cpu_seconds=st.none() | st.floats(0, 1e9),
    ),
)
