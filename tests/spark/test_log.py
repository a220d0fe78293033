"""The log of Spark: what PySpark and py4j write does not reach standard error."""

from __future__ import annotations

import logging
import socket
import struct
import tempfile
import threading
from pathlib import Path

import pytest
from py4j.java_gateway import (  # type: ignore[import-untyped]  # py4j has no types
    GatewayClient,
    GatewayParameters,
)
from py4j.protocol import ERROR  # type: ignore[import-untyped]  # py4j has no types

from penstock.links.spark.log import SparkLog


def answer_with_a_reset(server: socket.socket) -> None:
    """What a JVM does that is killed while a request of py4j lies unread."""
    connection, _ = server.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def ask_a_dying_jvm() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer_with_a_reset, args=(server,))
        answering.start()
        client = GatewayClient(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        assert client.send_command("c\no1\nsize\ne\n") == ERROR
        answering.join()


def test_a_connection_that_a_dying_jvm_resets_is_in_the_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = SparkLog()
    with log.opened(tmp_path):
        log.take_loggers()
        ask_a_dying_jvm()
        logging.getLogger().warning("of somebody else")
        assert [record.message for record in caplog.records if record.name == "root"] == ["of somebody else"]
        written = (tmp_path / "spark.log").read_text()
        assert "Traceback" in written
        assert "somebody else" not in written
    log.close()
    caplog.clear()
    ask_a_dying_jvm()  # that of a user's own Spark
    assert "Exception while sending command." in caplog.text


def test_a_thread_that_learns_late_of_a_death_writes_to_the_log_that_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = SparkLog()
    with log.opened(tmp_path):
        log.take_loggers()
    kept = Path(log.keep("Spark died"))
    log.close()
    try:
        ask_a_dying_jvm()
        assert caplog.text == ""
        assert "Traceback" in kept.read_text()
    finally:
        another = SparkLog()
        another.take_loggers()
        another.close()
    ask_a_dying_jvm()
    assert "Exception while sending command." in caplog.text
