"""A connection over HTTP/1.1 against servers that do everything that HTTP allows, and some that break it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.links.http.direct import find_target
from penstock.links.http.failures import AnswerLost
from penstock.links.http.http1 import Http1Connection, RawAnswer, Server, render_request

REQUEST = render_request("/charges?limit=1", {"Host": "127.0.0.1", "Authorization": "Bearer sk"})
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


class Scripted(asyncio.Protocol):
    """Answers the requests of all connections with one script after the other, piece by piece.

    A piece is bytes to send, seconds to wait, or None to close the connection.
    """

    def __init__(self, scripts: list[Sequence[bytes | float | None]], opened: list[Scripted]) -> None:
        self.scripts, self.opened = scripts, opened
        self.read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.opened.append(self)

    def data_received(self, data: bytes) -> None:
        self.read += data
        while self.read.count(b"\r\n\r\n"):
            _, _, self.read = self.read.partition(b"\r\n\r\n")
            self.play(self.scripts.pop(0))

    def play(self, pieces: Sequence[bytes | float | None]) -> None:
        for number, piece in enumerate(pieces):
            if piece is None:
                self.transport.close()
            elif isinstance(piece, bytes):
                self.transport.write(piece)
            else:
                asyncio.get_running_loop().call_later(piece, self.play, pieces[number + 1 :])
                return


Ask = Callable[[Http1Connection], Awaitable[None]]


def run(
    scripts: list[Sequence[bytes | float | None]],
    ask: Ask,
    timeout: float = 5.0,
    opened: list[Scripted] | None = None,
) -> None:
    """Use one connection to a scripted server; `opened` gets the server's side of it."""
    served = [] if opened is None else opened

    async def use() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Scripted(scripts, served), "127.0.0.1", 0)
        address = Server("127.0.0.1", server.sockets[0].getsockname()[1], None)
        connection = await Http1Connection.open(address, timeout)
        try:
            await ask(connection)
        finally:
            await connection.close()
            server.close()

    asyncio.run(use())


def ask_once(*pieces: bytes | float | None, timeout: float = 5.0) -> tuple[RawAnswer, bool]:
    """One answer, and whether the connection may be used again."""
    found: list[tuple[RawAnswer, bool]] = []

    async def ask(connection: Http1Connection) -> None:
        answer = await connection.ask(REQUEST)
        found.append((answer, connection.is_usable))

    run([pieces], ask, timeout)
    return found[0]


@pytest.mark.parametrize(
    "pieces",
    [
        [WHOLE],
        [WHOLE[:9], 0.01, WHOLE[9:30], 0.01, WHOLE[30:]],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n",
            b"2;of=it\r\ndy\r\n0\r\nX-After: 1\r\n\r\n",
        ],
        [b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + WHOLE],
    ],
)
def test_an_answer_comes_whole_and_the_connection_is_kept(pieces: list[bytes | float | None]) -> None:
    answer, is_kept = ask_once(*pieces)
    assert (answer.status, answer.body, is_kept) == (200, b"body", True)
    assert "link" not in answer.headers
    assert "x-after" not in answer.headers


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\n\r\nbo", 0.01, b"dy", None],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody"],
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"],
        [WHOLE + b"HTTP/1.1 500 Nobody asked\r\nContent-Length: 1\r\n\r\n!"],
        [WHOLE, None],
    ],
)
def test_a_connection_that_the_server_ends_is_not_used_again(pieces: list[bytes | float | None]) -> None:
    found: list[bool] = []

    async def ask(connection: Http1Connection) -> None:
        answer = await connection.ask(REQUEST)
        assert (answer.status, answer.body) == (200, b"body")
        await asyncio.sleep(0.01)
        found.append(connection.is_usable)

    run([pieces], ask)
    assert found == [False]


@pytest.mark.parametrize(
    "pieces",
    [
        [None],
        [WHOLE[:9], None],
        [WHOLE[:-1], None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", None],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nbody", None],
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody!"],
        [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\nwords"],
        [b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * (300 << 10)],
    ],
)
def test_an_answer_that_is_not_whole_is_lost(pieces: list[bytes | float | None]) -> None:
    with pytest.raises(AnswerLost, match="the connection was lost"):
        ask_once(*pieces)


def test_a_server_that_is_silent_is_given_up_and_one_that_goes_on_is_not() -> None:
    with pytest.raises(AnswerLost, match=r"no answer within 0\.1 s"):
        ask_once(WHOLE[:9], 1.0, timeout=0.1)
    slowly = [piece for number in range(len(WHOLE)) for piece in (WHOLE[number : number + 1], 0.01)]
    assert ask_once(*slowly, timeout=0.2)[0].body == b"body"


def test_headers_of_one_name_are_joined() -> None:
    head = b"HTTP/1.1 200 OK\r\nLink: <a>\r\nlink:  <b> \r\nX-Empty:\r\nContent-Length: 0\r\n\r\n"
    answer, _ = ask_once(head)
    assert answer.headers == {"link": "<a>, <b>", "x-empty": "", "content-length": "0"}


def test_an_answer_without_a_body_needs_no_length() -> None:
    answer, is_kept = ask_once(b"HTTP/1.1 304 Not Modified\r\n\r\n")
    assert (answer.status, answer.body, is_kept) == (304, b"", True)


def test_a_connection_that_has_ended_is_noticed_before_a_request_is_lost() -> None:
    """Also when the event loop has not seen it yet."""
    opened: list[Scripted] = []
    found: list[bool] = []

    async def ask(connection: Http1Connection) -> None:
        await connection.ask(REQUEST)
        found.append(connection.is_usable)
        opened[0].transport.abort()
        await asyncio.sleep(0)  # the server closes; nothing was read since
        found.append(connection.is_usable)
        await asyncio.sleep(0.01)
        with pytest.raises(AnswerLost):
            await connection.ask(REQUEST)

    run([[WHOLE]], ask, opened=opened)
    assert found == [True, False]


def test_a_connection_is_not_used_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []

    async def ask(connection: Http1Connection) -> None:
        await connection.ask(REQUEST)
        monkeypatch.setattr("penstock.links.http.http1.KEEP_ALIVE_SECONDS", 0.0)
        found.append(connection.is_usable)

    run([[WHOLE]], ask)
    assert found == [False]


def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    async def ask(connection: Http1Connection) -> None:
        asked = asyncio.create_task(connection.ask(REQUEST))
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not connection.is_usable

    run([[WHOLE[:-1]]], ask)


def test_a_server_that_is_not_there() -> None:
    async def use() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await Http1Connection.open(Server("127.0.0.1", port, None), timeout=5.0)

    with pytest.raises(AnswerLost, match="cannot be reached") as lost:
        asyncio.run(use())
    assert lost.value.connect


@given(st.text("ab.~/%2f?=&+[]{}<> \"'#:,;@!$*()|\\^`é-_", max_size=12))
def test_a_target_is_spelled_as_httpx_spells_it(rest: str) -> None:
    url = f"https://api.example.org/v1{rest}"
    assert find_target(url) == httpx.URL(url).raw_path.decode()
