"""A list API for tests, in a process of its own: objects shaped like Stripe's, every kind of paging, faults on request.

    python -m penstock.testing.rest_api SETTINGS.json

Its clock stands still unless it is told otherwise, so that a test says when an object was created. Tests change it
while it runs and read the requests that it got; both go through paths that begin with `/_`.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import random
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

#: the server's clock at its start: 2026-01-01 00:00 UTC
EPOCH = 1_767_225_600
_UNITS = {"seconds": 1, "milliseconds": 1000}


@dataclass
class Endpoint:
    """One list of objects, oldest first in memory."""

    name: str
    #: newest or oldest
    order: str = "newest"
    #: last_id, token, link, next_url, page or offset
    paging: str = "last_id"
    #: objects on a page at most, whatever is asked for
    most: int = 100
    #: seconds, milliseconds or iso
    unit: str = "seconds"
    time_field: str = "created"
    #: bytes of padding in each object
    padding: int = 0
    #: answers with this status instead of objects; 0: it answers properly
    status: int = 0
    #: whether it takes filters, and lists all objects all the same
    ignores_filter: bool = False
    #: whether a page's number counts pages of the size that was asked for, although it gives `most` at most
    counts_what_was_asked: bool = False
    #: where a status of 3xx leads to
    moved_to: str = ""
    #: names of the parameters that bound the time: at or after, before
    since: str = "created[gte]"
    before: str = "created[lt]"
    #: objects whose time field is left out or null, by index
    odd: dict[str, Any] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def add(self, created: int) -> None:
        """Add an object with this time, after all others of the same time."""
        number, self.made = self.made, self.made + 1
        id_ = f"{self.name[:2]}_{number:08}"
        document: dict[str, Any] = {
            "id": id_,
            "object": self.name.rstrip("s"),
            "amount": number * 7919 % 100_000,
            self.time_field: self.spelled(created),
            "currency": "eur",
            "livemode": False,
            "metadata": {"number": str(number)},
        }
        if self.padding:
            document["description"] = "x" * self.padding
        document |= self.odd.get(str(number), {})
        body = json.dumps({name: value for name, value in document.items() if value != "(absent)"}).encode()
        place = bisect.bisect_right(self.times, created)
        if place == len(self.times):
            self.index[id_] = place
        self.times.insert(place, created)
        self.ids.insert(place, id_)
        self.bodies.insert(place, body)
        if place != len(self.times) - 1:
            self.index = {each: at for at, each in enumerate(self.ids)}

    def remove(self, id_: str) -> None:
        place = self.index[id_]
        del self.times[place], self.ids[place], self.bodies[place]
        self.index = {each: at for at, each in enumerate(self.ids)}

    def update(self, id_: str, created: int) -> None:
        """Give an object another time, as a list by `updated` does."""
        place = self.index[id_]
        document = json.loads(self.bodies[place]) | {self.time_field: self.spelled(created)}
        del self.times[place], self.ids[place], self.bodies[place]
        place = bisect.bisect_right(self.times, created)
        self.times.insert(place, created)
        self.ids.insert(place, id_)
        self.bodies.insert(place, json.dumps(document).encode())
        self.index = {each: at for at, each in enumerate(self.ids)}

    def spelled(self, created: int) -> int | str:
        if self.unit == "iso":
            return datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
        return created * _UNITS[self.unit]

    def read(self, value: str) -> float:
        if self.unit == "iso":
            return datetime.fromisoformat(value).timestamp()
        return int(value) / _UNITS[self.unit]

    def page(self, asked: Mapping[str, str], address: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a page."""
        try:
            low = bisect.bisect_left(self.times, self.read(asked[self.since])) if self.since in asked else 0
            high = bisect.bisect_left(self.times, self.read(asked[self.before])) if self.before in asked else None
            limit = min(int(asked.get("limit", "10")), self.most)
        except ValueError as error:
            return _problem(400, f"Invalid parameter: {error}")
        if limit < 1:
            return _problem(400, "Invalid limit")
        high = len(self.times) if high is None else max(low, high)
        if self.ignores_filter:
            low, high = 0, len(self.times)
        newest = self.order == "newest"
        skip = 0
        try:
            if "starting_after" in asked and self.paging == "last_id":
                at = self.index[asked["starting_after"]]
                low, high = (low, max(low, min(high, at))) if newest else (max(low, at + 1), high)
            elif "page_token" in asked:
                at = int(asked["page_token"].removeprefix("after-"))
                low, high = (low, min(high, at)) if newest else (max(low, at), high)
            elif self.paging == "page":
                size = int(asked.get("limit", "10")) if self.counts_what_was_asked else limit
                skip = (int(asked.get("page", "1")) - 1) * size
            elif self.paging == "offset":
                skip = int(asked.get("offset", "0"))
        except KeyError as missing:
            return _problem(400, f"No such object: {missing}", code="resource_missing")
        if newest:
            first, last = max(low, high - skip - limit), max(low, high - skip)
            chosen = self.bodies[first:last][::-1]
            more, edge = first > low, first
        else:
            first, last = min(high, low + skip), min(high, low + skip + limit)
            chosen = self.bodies[first:last]
            more, edge = last < high, last
        return 200, *self._envelope(chosen, more, edge, asked, address)

    def _envelope(
        self, chosen: list[bytes], more: bool, edge: int, asked: Mapping[str, str], address: str
    ) -> tuple[bytes, dict[str, str]]:
        said: dict[str, Any] = {"object": "list", "has_more": more, "url": f"/v1/{self.name}"}
        headers: dict[str, str] = {}
        following = f"{address}/v1/{self.name}?{urlencode({**asked, 'page_token': f'after-{edge}'})}"
        if self.paging == "token":
            said["next_page_token"] = f"after-{edge}" if more else None
        elif self.paging == "next_url":
            said["next"] = following if more else None
        elif self.paging == "link" and more:
            headers["Link"] = f'<{following}>; rel="next", <{address}>; rel="first"'
        head = json.dumps(said)[:-1].encode()
        return head + b', "data": [' + b", ".join(chosen) + b"]}", headers


def _problem(status: int, text: str, code: str = "") -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps({"error": {"message": text, "code": code}}).encode(), {}


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

    # ------------------------------------------------------------ for clients

    def seconds(self) -> float:
        return time.time() if self.now is None else self.now

    def answer(self, path: str, asked: dict[str, str], headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """The answer to a list request."""
        name = unquote(path.removeprefix("/v1/"))
        if path == "/oauth/token":
            if self.faults.token_status:
                return _problem(self.faults.token_status, f"no token for {headers.get('x-api-key', 'this client')}")
            document: dict[str, Any] = {"access_token": self.faults.given_token or self.faults.token}
            document |= {"expires_in": self.faults.token_seconds} if self.faults.token_seconds else {}
            return 200, json.dumps(document).encode(), {}
        given = headers.get("authorization", "")
        if self.faults.token and self.faults.token not in (given, given.removeprefix("Bearer "), asked.get("key")):
            return _problem(401, f"Invalid API Key provided: {given}")
        if self.faults.rate and not self._grant():
            value = formatdate(time.time() + 1, usegmt=True) if self.faults.retry_after == "date" else None
            return 429, _problem(429, "Too many requests")[1], {"Retry-After": value or self.faults.retry_after}
        if self.random.random() < self.faults.errors:
            return _problem(500, "Something went wrong")
        if name == "account":
            return (200, json.dumps(self.account).encode(), {}) if self.account else _problem(403, "No permission")
        endpoint = self.endpoints.get(name) or self._below(name)
        if endpoint is None:
            return _problem(404, f"Unrecognized request URL (GET: {path})")
        if endpoint.status:
            status, body, more = _problem(endpoint.status, f"{name} always answers {endpoint.status}")
            return status, body, more | ({"Location": endpoint.moved_to} if endpoint.moved_to else {})
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
