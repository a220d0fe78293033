"""The protocol between a producer and the receiver: what is written can be read, and nothing else can."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.links.http import protocol
from penstock.links.http.protocol import BadHeader, SentChunk

IDS = st.text("0123456789abcdef", min_size=64, max_size=64)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


@st.composite
def chunks(draw: st.DrawFn) -> SentChunk:
    count = draw(st.integers(1, 50))
    chunk = draw(st.integers(1, count))
    bounds = protocol.encode_bounds({"position": draw(st.text())}) if chunk == 1 else ""
    return SentChunk(
        producer=draw(NAMES),
        slice=draw(IDS),
        number=draw(st.integers(1, 10**9)),
        predecessor=draw(st.just("") | IDS),
        chunk=chunk,
        chunks=count,
        rows=draw(st.integers(0, 10**9)),
        digest=protocol.digest_of(draw(st.binary())),
        bounds=bounds,
    )


@given(chunks())
def test_a_chunk_is_read_as_it_was_written(chunk: SentChunk) -> None:
    headers = chunk.headers()
    assert protocol.read_chunk(headers) == chunk
    assert protocol.read_chunk({name.lower(): value for name, value in headers.items()}) == chunk
    assert all(value.isascii() and value.isprintable() and value == value.strip() for value in headers.values())


WHOLE = SentChunk("p", "ab", 2, "cd", 1, 2, 3, "0" * 64, "YWJj").headers()


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (protocol.KEY, "ab/2"),
        (protocol.KEY, ""),
        (protocol.PRODUCER, "%zz"),
        (protocol.PRODUCER, "%ff"),
        (protocol.PRODUCER, "p" * 1025),
        (protocol.SLICE, "AB"),
        (protocol.SLICE, "../x"),
        (protocol.NUMBER, "0"),
        (protocol.NUMBER, "-1"),
        (protocol.NUMBER, "1.5"),
        (protocol.NUMBER, "²"),
        (protocol.PREDECESSOR, "x"),
        (protocol.CHUNK, "0/2"),
        (protocol.CHUNK, "3/2"),
        (protocol.CHUNK, "1/1000001"),
        (protocol.CHUNK, "1"),
        (protocol.ROWS, ""),
        (protocol.ROWS, "many"),
        (protocol.DIGEST, "sha-256=12"),
        (protocol.DIGEST, "md5=" + "0" * 64),
        (protocol.BOUNDS, "not base64"),
        (protocol.BOUNDS, "A" * (protocol.MOST_BOUNDS + 1)),
    ],
)
def test_a_wrong_header_is_named(header: str, value: str) -> None:
    assert protocol.read_chunk(WHOLE) is not None
    with pytest.raises(BadHeader) as bad:
        protocol.read_chunk({**WHOLE, header: value})
    assert bad.value.header == header
    assert len(str(bad.value)) < 600


def test_bounds_belong_to_the_first_chunk() -> None:
    with pytest.raises(BadHeader, match="chunk 1"):
        protocol.read_chunk({**WHOLE, protocol.CHUNK: "2/2", protocol.KEY: "ab/2"})


def test_a_batch_without_a_producer_is_a_bare_one() -> None:
    assert protocol.read_chunk({protocol.KEY: "anything"}) is None
    assert protocol.check_key("anything") == "anything"
    for key in ("", "a b", "ä", "k" * 256, "a\n"):
        with pytest.raises(BadHeader):
            protocol.check_key(key)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()))
def test_bounds_come_back(document: dict[str, Any]) -> None:
    sent = protocol.encode_bounds(document)
    protocol.check_bounds(sent)
    assert protocol.decode_bounds(sent) == document


def test_bounds_that_are_too_large_or_damaged_are_refused() -> None:
    with pytest.raises(ValueError, match="the receiver takes"):
        protocol.encode_bounds({"noise": _noise()})
    sent = protocol.encode_bounds({"a": "b" * 100})
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * (protocol.MOST_BOUNDS_JSON + 1))).decode()
    for damaged in (sent[:-6], "", "!", "AAAA", bomb):
        with pytest.raises(ValueError, match="not bounds"):
            protocol.decode_bounds(damaged)


def _noise() -> str:
    import hashlib

    return "".join(hashlib.sha256(str(each).encode()).hexdigest() for each in range(2000))


@given(NAMES | st.sampled_from([".", "..", "a/b", "../x"]))
def test_names_are_one_segment_of_a_path(name: str) -> None:
    assert protocol.decode_name(protocol.encode_name(name)) == name
    assert protocol.producer_path(name, name).count("/") == 5
    assert not {".", ".."} & set(protocol.producer_path(name, name).split("/"))
    assert protocol.slice_path(name, name, "ab").endswith("/slices/ab")
    assert protocol.batches_path(name).endswith("/batches")


def test_meta_comes_back_or_is_refused() -> None:
    meta = {"source": "orders", "cursor": 5, "lag_seconds": 1.5}
    assert protocol.decode_meta(protocol.encode_meta(meta)) == meta
    for wrong in ("", "W10", "!", "A" * 5000, "gA"):
        with pytest.raises(BadHeader):
            protocol.decode_meta(wrong)
