"""The events feed of the list API for tests: what happened to objects, newest first, some of it late, for 30 days."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.harness.rest_lists import Endpoint

#: how long events are kept, as by Stripe
KEPT_SECONDS = 30 * 86400


@dataclass
class EventFeed:
    """Events that are listed by the endpoint `events`."""

    listed: Endpoint
    #: seconds after which an event is removed
    kept: int = KEPT_SECONDS
    #: version of the API that objects in events are written in
    api_version: str = "2024-06-20"
    #: events that are not listed yet, with the time at which they are
    hidden: list[tuple[float, int, str, bytes]] = field(default_factory=list)
    made: int = 0

    def add(self, type_: str, body: bytes, created: int, late: float = 0) -> None:
        """Something happened to an object; the event appears `late` seconds after that."""
        number, self.made = self.made, self.made + 1
        event: dict[str, Any] = {
            "id": f"evt_{number:08}",
            "object": "event",
            "api_version": self.api_version,
            "created": created,
            "type": type_,
            "data": {"object": json.loads(body)},
        }
        self.hidden.append((created + late, created, event["id"], json.dumps(event).encode()))

    def refresh(self, now: float) -> None:
        """List the events whose time has come, and remove those that are too old."""
        for at, created, id_, body in self.hidden:
            if at <= now:
                self.listed.insert(id_, created, body)
        self.hidden = [each for each in self.hidden if each[0] > now]
        while self.listed.times and self.listed.times[0] < now - self.kept:
            self.listed.remove(self.listed.ids[0])
