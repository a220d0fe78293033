"""The lists of the list API for tests: objects shaped like Stripe's, every kind of paging."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

#: the parameters that name the next page
_NEXT_PAGE = ("starting_after", "page_token", "page", "offset")
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
    #: seconds to which the times of filters are rounded down
    granularity: int = 1
    #: whether it takes filters, and lists all objects all the same
    ignores_filter: bool = False
    #: whether a page's number counts pages of the size that was asked for, although it gives `most` at most
    counts_what_was_asked: bool = False
    #: answers with this status to every request that names a next page; 0: it does not
    refuses_cursors: int = 0
    #: gives the first page whatever next page is asked for
    ignores_cursors: bool = False
    #: whether an offset is rounded down to whole pages
    rounds_offset: bool = False
    #: where a status of 3xx leads to
    moved_to: str = ""
    #: so many requests are answered with 429 before anything else
    busy: int = 0
    #: further parameters in the address of a next page
    more_query: str = ""
    #: names of the parameters that bound the time: at or after, before
    since: str = "created[gte]"
    before: str = "created[lt]"
    #: objects whose time field is left out or null, by index
    odd: dict[str, Any] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    added: int = 0
    made: int = 0
    #: by id, when it came to its place in the list: later than all others of its time
    placed: dict[str, int] = field(default_factory=dict)

    def add(self, created: int) -> None:
        """Add an object with this time, after all others of the same time."""
        number = self.added
        self.added += 1
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
        self.insert(id_, created, body)

    def insert(self, id_: str, created: int, body: bytes) -> None:
        """Put a body into the list, after all others of the same time."""
        place = bisect.bisect_right(self.times, created)
        self.placed[id_] = self.made = self.made + 1
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
        self.placed[id_] = self.made = self.made + 1
        self.times.insert(place, created)
        self.ids.insert(place, id_)
        self.bodies.insert(place, json.dumps(document).encode())
        self.index = {each: at for at, each in enumerate(self.ids)}

    def change(self, id_: str, fields: Mapping[str, Any]) -> bytes:
        """Give an object other values; its body."""
        place = self.index[id_]
        self.bodies[place] = json.dumps(json.loads(self.bodies[place]) | dict(fields)).encode()
        return self.bodies[place]

    def spelled(self, created: int) -> int | str:
        if self.unit == "iso":
            return datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
        return created * _UNITS[self.unit]

    def read(self, value: str) -> float:
        time = datetime.fromisoformat(value).timestamp() if self.unit == "iso" else int(value) / _UNITS[self.unit]
        return time if self.granularity == 1 else time // self.granularity * self.granularity

    def page(self, asked: Mapping[str, str], address: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a page."""
        if any(name in asked for name in _NEXT_PAGE):
            if self.refuses_cursors:
                return problem(self.refuses_cursors, "No such page", code="resource_missing")
            if self.ignores_cursors:
                asked = {name: value for name, value in asked.items() if name not in _NEXT_PAGE}
        try:
            low = bisect.bisect_left(self.times, self.read(asked[self.since])) if self.since in asked else 0
            high = bisect.bisect_left(self.times, self.read(asked[self.before])) if self.before in asked else None
            limit = min(int(asked.get("limit", "10")), self.most)
        except ValueError as error:
            return problem(400, f"Invalid parameter: {error}")
        if limit < 1:
            return problem(400, "Invalid limit")
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
                at = self._find(asked["page_token"])
                low, high = (low, min(high, at)) if newest else (max(low, at), high)
            elif self.paging == "page":
                size = int(asked.get("limit", "10")) if self.counts_what_was_asked else limit
                skip = (int(asked.get("page", "1")) - 1) * size
            elif self.paging == "offset":
                skip = int(asked.get("offset", "0"))
                skip -= skip % limit if self.rounds_offset else 0
        except KeyError as missing:
            return problem(400, f"No such object: {missing}", code="resource_missing")
        if newest:
            first, last = max(low, high - skip - limit), max(low, high - skip)
            chosen = self.bodies[first:last][::-1]
            more = first > low
        else:
            first, last = min(high, low + skip), min(high, low + skip + limit)
            chosen = self.bodies[first:last]
            more = last < high
        last_read = first if newest else last - 1
        return 200, *self._envelope(chosen, more, self._token(last_read, newest), asked, address)

    def _token(self, place: int, newest: bool) -> str:
        """A token for what follows a place; it stays right when objects before or at it are deleted."""
        if not 0 <= place < len(self.times):
            return "end"
        return f"after-{self.times[place]}-{self.placed[self.ids[place]] - newest}"

    def _find(self, token: str) -> int:
        """The place of the first object after the one that a token names."""
        _, time, placed = token.split("-")
        at = bisect.bisect_left(self.times, int(time))
        while at < len(self.times) and self.times[at] == int(time) and self.placed[self.ids[at]] <= int(placed):
            at += 1
        return at

    def _envelope(
        self, chosen: list[bytes], more: bool, token: str, asked: Mapping[str, str], address: str
    ) -> tuple[bytes, dict[str, str]]:
        said: dict[str, Any] = {"object": "list", "has_more": more, "url": f"/v1/{self.name}"}
        headers: dict[str, str] = {}
        following = f"{address}/v1/{self.name}?{urlencode({**asked, 'page_token': token})}{self.more_query}"
        if self.paging == "token":
            said["next_page_token"] = token if more else None
        elif self.paging == "next_url":
            said["next"] = following if more else None
        elif self.paging == "link" and more:
            headers["Link"] = f'<{following}>; rel="next", <{address}>; rel="first"'
        head = json.dumps(said)[:-1].encode()
        return head + b', "data": [' + b", ".join(chosen) + b"]}", headers


def problem(status: int, text: str, code: str = "") -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps({"error": {"message": text, "code": code}}).encode(), {}
