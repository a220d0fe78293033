"""Messages survive their line of JSON; a line that is not quite a message is refused."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.core.strategies import given, messages

from penstock.core.messages import TYPES, Log, Message, MessageRefused, StateChanged, decode, encode

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(messages)
def test_a_message_survives_its_line(message: Message) -> None:
    line = encode(message)
    assert "\n" not in line
    assert decode(line) == message


def test_there_is_a_strategy_for_every_type() -> None:
    branches = messages.branches
    assert len(branches) == len(TYPES) == 10


@given(messages)
def test_type_and_time_come_first(message: Message) -> None:
    assert list(json.loads(encode(message)))[:2] == ["type", "_ts"]


@given(messages)
def test_a_message_without_its_time_is_neither_written_nor_read(message: Message) -> None:
    document = json.loads(encode(message))
    for without in ({k: v for k, v in document.items() if k != "_ts"}, document | {"_ts": None}):
        with pytest.raises(MessageRefused, match="without _ts"):
            decode(json.dumps(without))
    with pytest.raises(MessageRefused, match="without _ts"):
        encode(type(message)(**vars(message) | {"ts": None}))


@given(messages)
def test_an_unknown_key_is_refused(message: Message) -> None:
    for key in ("surprise", "ts"):
        with pytest.raises(MessageRefused, match=key):
            decode(json.dumps(json.loads(encode(message)) | {key: "2026-01-01T12:00:00Z"}))


@given(messages)
def test_a_missing_key_is_refused_or_has_its_default(message: Message) -> None:
    document = json.loads(encode(message))
    for key in document.keys() - {"type", "_ts"}:
        rest = {name: value for name, value in document.items() if name != key}
        default = next(field for field in dataclasses.fields(message) if field.name == key)
        if default.default is dataclasses.MISSING and default.default_factory is dataclasses.MISSING:
            with pytest.raises(MessageRefused, match=key):
                decode(json.dumps(rest))
        else:
            assert type(decode(json.dumps(rest))) is type(message)


CATALOG: dict[str, Any] = {"type": "catalog", "_ts": "2026-01-01T12:00:00Z", "pipeline": "p", "run": "r"}
STREAM: dict[str, Any] = {"stream": "s", "kind": "rows", "primary_key": [], "order": [], "skipped": None}


@pytest.mark.parametrize(
    "document",
    [
        {"type": "nothing", "_ts": "2026-01-01T12:00:00Z"},
        {"_ts": "2026-01-01T12:00:00Z"},
        [],
        {"type": "log", "_ts": "noon", "level": "info", "text": "x"},
        {"type": "log", "_ts": 12, "level": "info", "text": "x"},
        {"type": "stream_status", "_ts": "2026-01-01T12:00:00Z", "stream": "s", "status": "weird"},
        CATALOG | {"streams": [STREAM | {"surprise": 1}]},
        CATALOG | {"streams": [{"stream": "s", "kind": "rows"}]},
        CATALOG | {"streams": 5},
    ],
)
def test_what_is_not_quite_a_message_is_refused(document: Any) -> None:
    with pytest.raises(MessageRefused):
        decode(json.dumps(document))


def test_a_catalog_of_one_stream_is_read() -> None:
    assert encode(decode(json.dumps(CATALOG | {"streams": [STREAM]}))).startswith('{"type": "catalog"')


def test_the_time_is_written_in_utc_with_microseconds() -> None:
    there = datetime(2026, 1, 1, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    line = json.loads(encode(Log(level="info", text="x").stamped(there)))
    assert line["_ts"] == "2026-01-01T12:00:00.000001Z"


def test_the_exact_line() -> None:
    message = StateChanged(
        stream="orders",
        version=3,
        number=2,
        slice_id="ab",
        mark='{"key":["é"]}',
        reason="advance",
        rows=5,
        bytes=40,
        outcome={"created": 3, "updated": 2},
        at="key é",
    )
    assert encode(message.stamped(NOON)) == (
        '{"type": "state", "_ts": "2026-01-01T12:00:00.000000Z", "stream": "orders", "version": 3, "number": 2, '
        '"slice_id": "ab", "mark": "{\\"key\\":[\\"é\\"]}", "reason": "advance", "rows": 5, "bytes": 40, '
        '"outcome": {"created": 3, "updated": 2}, "at": "key é"}'
    )
