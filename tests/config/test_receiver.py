"""The section `receiver`: what it may say, and the mistake that is named otherwise."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from penstock import wiring
from penstock.config.receiver import Receiver
from penstock.errors import ConfigError

PIPELINES = """
pipelines:
  inbox:
    source: {type: wal, directory: received}
    sink: {type: files, directory: out}
    streams: {orders: {columns: {id: int64}}}
"""


def load(folder: Path, section: str) -> Receiver:
    path = folder / "receiver.yaml"
    path.write_text(f"receiver: {section}{PIPELINES}")
    found = wiring.load(str(path)).receiver
    assert found is not None
    return found


def test_a_section_with_everything(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "{directory: received, port: 9000, log: {budget: 1GiB, key_time: 2h}, limits: {request_time: 90s},"
        " tls: {certificate: c.pem, key: k.pem},"
        " streams: {orders: {columns: {id: int64}, primary_key: [id], producers: [shop], keys: optional}}}",
    )
    assert (found.port, found.host, found.create_streams) == (9000, "127.0.0.1", False)
    assert (found.log.budget, found.log.key_time) == (1 << 30, timedelta(hours=2))
    assert found.limits.request_time == timedelta(seconds=90)
    assert found.streams["orders"].producers == ("shop",)


def test_a_file_without_it(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(PIPELINES)
    assert wiring.load(str(path)).receiver is None


MISTAKES = {
    "{}": "receiver.directory",
    "{directory: x}": "no stream can be received",
    "{directory: x, create_streams: true, prot: 1}": "did you mean 'port'?",
    "{directory: x, create_streams: true, port: 70000}": "receiver.port",
    "{directory: x, create_streams: true, log: {bugdet: 1GiB}}": "did you mean 'budget'?",
    "{directory: x, create_streams: true, log: {budget: much}}": "receiver.log.budget",
    "{directory: x, create_streams: true, tls: {certificate: c.pem}}": "receiver.tls.key",
    "{directory: x, streams: {orders: {columns: {id: integer}}}}": "receiver.streams.orders.columns.id",
    "{directory: x, streams: {orders: {columns: {id: binary}}}}": "binary is not supported",
    "{directory: x, streams: {orders: {columns: {id: int64}, primary_key: [key]}}}": "`primary_key` names key",
    "{directory: x, streams: {orders: {extra_fields: refuse}}}": "`extra_fields: refuse` needs `columns`",
    "{directory: x, streams: {orders: {takes: ops, columns: {id: int64}}}}": "a stream of ops has no `columns`",
    "{directory: x, streams: {a/b: {}}}": "must not contain '/'",
    "{directory: x, streams: {'..': {}}}": "must not be '..'",
}


@pytest.mark.parametrize("section", MISTAKES)
def test_a_mistake_is_named(tmp_path: Path, section: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, section)
    assert MISTAKES[section] in str(caught.value)
