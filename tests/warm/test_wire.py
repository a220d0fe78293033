"""What the two sides say to each other, and what becomes of those who say something else, or nothing."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.warm.wire import Gone, receive, same_user, send


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with left, right:
        yield left, right


def test_a_large_message_arrives_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    # An environment may be large, and its bytes need not be UTF-8.
    message = {"hello": {"variables": {"BIG": "x" * 1_500_000, "RAW": "\udcff"}}}
    sender = threading.Thread(target=send, args=(pair[0], message))
    sender.start()
    assert receive(pair[1], 10.0) == (message, [])
    sender.join()


def test_files_come_with_their_message(pair: tuple[socket.socket, socket.socket]) -> None:
    reading, writing = os.pipe()
    send(pair[0], {"go": True}, (reading, writing))
    message, files = receive(pair[1], 1.0, most_files=3)
    assert message == {"go": True}
    os.close(writing)
    os.write(files[1], b"x")
    assert os.read(reading, 1) == b"x"
    for file in (reading, *files):
        os.close(file)


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\2{x", b"\0\0\0\x09{}"])
def test_anything_else_is_nobody(sent: bytes, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(sent)
    pair[0].close()
    with pytest.raises(Gone):
        receive(pair[1], 1.0)


def test_one_who_says_half_and_waits_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(b"\0\0\0\x09{")
    began = time.monotonic()
    with pytest.raises(Gone):
        receive(pair[1], 0.05)
    assert time.monotonic() - began >= 0.05


def test_files_of_a_message_that_is_none_are_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reading, writing = os.pipe()
    content = b"\0\0\0\2[]"
    pair[0].sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, bytes(memoryview(_ints(reading, writing))))])
    with pytest.raises(Gone):
        receive(pair[1], 1.0, most_files=3)
    os.close(reading)
    os.close(writing)
    assert len(os.listdir("/proc/self/fd")) == before


def _ints(*numbers: int) -> memoryview:
    import array

    return memoryview(array.array("i", numbers))


def test_the_kernel_says_whose_process_it_is(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert same_user(pair[0])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not same_user(pair[0])


def test_a_message_to_nobody_is_said_so(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(Gone):
        send(pair[0], {"ended": 0})
