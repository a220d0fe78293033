"""A list API for tests, in a process of its own: objects shaped like Stripe's, every kind of paging, faults on request.

    python -m tests.harness.rest_api SETTINGS.json

Its clock stands still unless it is told otherwise, so that a test says when an object was created. Tests change it
while it runs and read the requests that it got; both go through paths that begin with `/_`.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.harness.rest_events import EventFeed
from tests.harness.rest_lists import Endpoint, problem

#: the server's clock at its start: 2026-01-01 00:00 UTC
EPOCH = 1_767_225_600


@dataclass
class Faults:
    """What goes wrong, and how often (0 to 1)."""

    #: seconds before an answer
    latency: float = 0.0
    #: requests in a second; 0: any number
    rate: int = 0
    #: the value of Retry-After with a 429: seconds, or `date`
    retry_after: str = "1"
    errors: float = 0.0
    #: the connection ends without an answer
    resets: float = 0.0
    #: the answer comes in pieces
    slow: float = 0.0
    #: the body ends in the middle, and its length says so
    truncated: float = 0.0
    #: the body is said to be compressed, and is not
    garbled: float = 0.0
    #: the status of a refusal for the `rate`
    limited: int = 429
    #: more headers with such a refusal; without `retry_after` only these
    limited_headers: dict[str, str] = field(default_factory=dict)
    #: Date: `clock`, `absent`, or seconds that it is off
    date: str = "clock"
    #: the token that a request must carry; "": none
    token: str = ""
    #: the token that OAuth clients are given; "": that one
    given_token: str = ""
    #: seconds that it is said to last; 0: it does not say
    token_seconds: int = 3600
    #: the status with which a token is refused; 0: it is given
    token_status: int = 0
    seed: int = 1


class Api:
    """All endpoints, the clock, the faults and the log of requests."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        #: seconds since 1970; None: the machine's own clock
        self.now: int | None = settings.get("now", EPOCH)
        self.faults = Faults(**settings.get("faults", {}))
        self.endpoints = {name: Endpoint(name, **about) for name, about in settings.get("endpoints", {}).items()}
        #: what `/v1/account` answers; None: the key may not read it
        self.account: dict[str, Any] | None = {"id": "acct_1", "object": "account", "created": EPOCH - 86400}
        #: what happened to objects; None: there is no feed
        self.feed = EventFeed(self.endpoints["events"]) if "events" in self.endpoints else None
        self.log: list[dict[str, Any]] = []
        self.granted: list[float] = []
        self.random = random.Random(self.faults.seed)
        self.address = ""

    # ------------------------------------------------------------ for tests

    def control(self, order: Mapping[str, Any]) -> Any:
        """Carry out what a test asks for; its answer is sent back as JSON."""
        match order:
            case {"do": "add", "endpoint": name, "times": list(times)}:
                for created in times:
                    self.endpoints[name].add(created)
            case {"do": "make", "endpoint": name, **settings}:
                self.endpoints[name] = Endpoint(name, **settings)
            case {"do": "remove", "endpoint": name, "id": id_}:
                self.endpoints[name].remove(id_)
            case {"do": "update", "endpoint": name, "id": id_, "time": created}:
                self.endpoints[name].update(id_, created)
            case {"do": "create" | "change" | "delete", "endpoint": _, **_rest}:
                return self._happen(order)
            case {"do": "feed", **changes} if self.feed is not None:
                for key, value in changes.items():
                    if key != "do":
                        setattr(self.feed, key, value)
            case {"do": "bodies", "endpoint": name}:
                return [json.loads(body) for body in self.endpoints[name].bodies]
            case {"do": "set", "endpoint": name, **changes}:
                for key, value in changes.items():
                    if key != "do":
                        setattr(self.endpoints[name], key, value)
            case {"do": "faults", **changes}:
                self.faults = Faults(**{key: value for key, value in changes.items() if key != "do"})
                self.random = random.Random(self.faults.seed)
            case {"do": "account", "account": account}:
                self.account = account
            case {"do": "clock", "now": now}:
                self.now = now
            case {"do": "objects", "endpoint": name}:
                known = self.endpoints.get(name) or Endpoint(name)
                return list(zip(known.ids, known.times, strict=True))
            case {"do": "log"}:
                return self.log
            case {"do": "forget"}:
                self.log.clear()
            case _:
                raise ValueError(f"not an order: {order}")
        return None

    def _happen(self, order: Mapping[str, Any]) -> str:
        """Create, change or delete an object, which makes an event; the object's id."""
        endpoint, now = self.endpoints[order["endpoint"]], int(self.seconds())
        if order["do"] == "create":
            endpoint.add(now)
            id_ = endpoint.ids[-1]
        else:
            id_ = order["id"]
        body = endpoint.change(id_, order.get("fields", {}))
        if order["do"] == "delete":
            endpoint.remove(id_)
        if self.feed is not None:
            what = {"create": "created", "change": "updated", "delete": "deleted"}[order["do"]]
            type_ = order.get("type") or f"{json.loads(body)['object']}.{what}"
            self.feed.add(type_, body, now, order.get("late", 0))
        return id_

    # ------------------------------------------------------------ for clients

    def seconds(self) -> float:
        return time.time() if self.now is None else self.now

    def answer(self, path: str, asked: dict[str, str], headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """The answer to a list request."""
        name = unquote(path.removeprefix("/v1/"))
        if path == "/oauth/token":
            if self.faults.token_status:
                return problem(self.faults.token_status, f"no token for {headers.get('x-api-key', 'this client')}")
            document: dict[str, Any] = {"access_token": self.faults.given_token or self.faults.token}
            document |= {"expires_in": self.faults.token_seconds} if self.faults.token_seconds else {}
            return 200, json.dumps(document).encode(), {}
        given = headers.get("authorization", "")
        if self.faults.token and self.faults.token not in (given, given.removeprefix("Bearer "), asked.get("key")):
            return problem(401, f"Invalid API Key provided: {given}")
        known = self.endpoints.get(name)
        if known and known.busy:
            known.busy -= 1
            return *problem(429, "Too many requests")[:2], {"Retry-After": "1"}
        if known and known.status:
            # Also above the rate limit, so that how a list fails does not depend on what else is asked for.
            status, body, more = problem(known.status, f"{name} always answers {known.status}")
            return status, body, more | ({"Location": known.moved_to} if known.moved_to else {})
        if self.faults.rate and not self._grant():
            value = formatdate(time.time() + 1, usegmt=True) if self.faults.retry_after == "date" else None
            said = {"Retry-After": value or self.faults.retry_after} if self.faults.retry_after else {}
            return *problem(self.faults.limited, "Too many requests")[:2], said | self.faults.limited_headers
        if self.random.random() < self.faults.errors:
            return problem(500, "Something went wrong")
        if name == "account":
            return (200, json.dumps(self.account).encode(), {}) if self.account else problem(403, "No permission")
        if self.feed is not None:
            self.feed.refresh(self.seconds())
        endpoint = self.endpoints.get(name) or self._below(name)
        if endpoint is None:
            return problem(404, f"Unrecognized request URL (GET: {path})")
        return endpoint.page(asked, self.address)

    def _below(self, name: str) -> Endpoint | None:
        """An empty list below an object that is there: `customers/cu_1/cards`."""
        above, _, _ = name.rpartition("/")
        parents, _, id_ = above.rpartition("/")
        known = self.endpoints.get(parents)
        return Endpoint(name) if known and id_ in known.index and not known.status else None

    def _grant(self) -> bool:
        now = time.monotonic()
        self.granted = [at for at in self.granted if at > now - 1]
        if len(self.granted) >= self.faults.rate:
            return False
        self.granted.append(now)
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urlsplit(target)
        if url.path == "/_control":
            said = json.dumps(self.control(json.loads(body))).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
            await writer.drain()
            return True
        asked = dict(parse_qsl(url.query, keep_blank_values=True))
        number = len(self.log)
        about = {"number": number, "method": method, "path": url.path, "query": asked, "at": time.time()}
        about["whole_query"] = url.query
        about["headers"] = sorted(headers)
        self.log.append(about)
        faults, chance = self.faults, self.random
        if faults.latency:
            await asyncio.sleep(faults.latency)
        if chance.random() < faults.resets:
            about["status"] = 0
            writer.transport.abort()
            return False
        status, said, more = self.answer(url.path, asked, headers)
        about["status"] = status
        if status == 200:
            about["objects"] = said.count(b'"object": "') - 1
        if status == 200 and chance.random() < faults.truncated:
            said = said[: len(said) // 2]
        if status == 200 and chance.random() < faults.garbled:
            more = more | {"Content-Encoding": "gzip"}
        return await self._send(writer, status, said, more | {"Request-Id": f"req_{number:06}"})

    async def _send(self, writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]) -> bool:
        if self.faults.date != "absent":
            off = 0 if self.faults.date == "clock" else int(self.faults.date)
            headers["Date"] = formatdate(self.seconds() + off, usegmt=True)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        if self.random.random() < self.faults.slow:
            writer.write(head.encode() + body[: len(body) // 2])
            await writer.drain()
            await asyncio.sleep(0.3)
            writer.write(body[len(body) // 2 :])
        else:
            writer.write(head.encode() + body)
        await writer.drain()
        return True


async def run(settings: Mapping[str, Any], listening: socket.socket) -> None:
    """Serve until the process is ended."""
    api = Api(settings)
    api.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = await asyncio.start_server(api.serve, sock=listening)
    print(api.address, flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    asyncio.run(run(settings, listening))


if __name__ == "__main__":
    main()
