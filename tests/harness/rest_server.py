"""Starts and controls the list API of `rest_api`, for tests."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness import rest_api
from tests.harness.forking import nursery
from tests.harness.rest_api import EPOCH


class RestServer:
    """One server in a process of its own, which ends with the process that started it."""

    def __init__(self, endpoints: dict[str, dict[str, Any]], now: int | None = EPOCH, **faults: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-rest-")
        settings = Path(self._folder.name, "settings.json")
        settings.write_text(json.dumps({"now": now, "endpoints": endpoints, "faults": faults}))
        self.now = now or 0
        self._process = nursery().start([str(settings)], Path(self._folder.name), os.environ, serves=rest_api.__name__)
        #: where it listens
        self.url = self._process.first_line()
        if not self.url:
            raise RuntimeError(f"the list API did not start: {self._process.communicate()[1]}")

    def _do(self, **order: Any) -> Any:
        request = urllib.request.Request(f"{self.url}/_control", json.dumps(order).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def add(self, endpoint: str, times: Sequence[int]) -> None:
        """Add objects with these times, in seconds since 1970."""
        self._do(do="add", endpoint=endpoint, times=list(times))

    def arrive(self, endpoint: str, count: int, *, in_a_second: int = 3) -> None:
        """Add objects at the server's time, `in_a_second` at a time; then its clock goes on past them."""
        self.add(endpoint, [self.now + number // in_a_second for number in range(count)])
        self.set_clock(self.now + -(-count // in_a_second) + 1)

    def set_clock(self, now: int) -> None:
        self.now = now
        self._do(do="clock", now=now)

    def make(self, endpoint: str, objects: int = 0, **settings: Any) -> None:
        """Make a list, such as one below an object of another (`customers/cu_1/cards`), with objects of this second."""
        self._do(do="make", endpoint=endpoint, **settings)
        self.add(endpoint, [self.now] * objects)

    def remove(self, endpoint: str, id_: str) -> None:
        self._do(do="remove", endpoint=endpoint, id=id_)

    def update(self, endpoint: str, id_: str, time: int) -> None:
        """Give an object another time."""
        self._do(do="update", endpoint=endpoint, id=id_, time=time)

    def create(self, endpoint: str, *, late: float = 0, **fields: Any) -> str:
        """Create an object now, with an event that appears `late` seconds after it; its id."""
        return str(self._do(do="create", endpoint=endpoint, fields=fields, late=late))

    def alter(self, endpoint: str, id_: str, *, late: float = 0, type_: str = "", **fields: Any) -> None:
        """Change an object now, with an event."""
        self._do(do="change", endpoint=endpoint, id=id_, fields=fields, late=late, type=type_)

    def delete(self, endpoint: str, id_: str, *, late: float = 0, type_: str = "") -> None:
        """Delete an object now, with an event."""
        self._do(do="delete", endpoint=endpoint, id=id_, late=late, type=type_)

    def set_feed(self, **settings: Any) -> None:
        """Change the feed: how long events are `kept`, their `api_version`."""
        self._do(do="feed", **settings)

    def bodies(self, endpoint: str) -> list[dict[str, Any]]:
        """All objects, oldest first."""
        return list(self._do(do="bodies", endpoint=endpoint))

    def change(self, name: str, **settings: Any) -> None:
        """Change an endpoint: its status, its page size."""
        self._do(do="set", endpoint=name, **settings)

    def set_account(self, account: dict[str, Any] | None) -> None:
        """What `/v1/account` answers; None: the key may not read it."""
        self._do(do="account", account=account)

    def set_faults(self, **faults: Any) -> None:
        """What goes wrong from now on; without any, nothing does."""
        self._do(do="faults", **faults)

    def objects(self, endpoint: str) -> list[tuple[str, int]]:
        """Ids and times of all objects, oldest first."""
        return [(id_, at) for id_, at in self._do(do="objects", endpoint=endpoint)]

    def requests(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """The requests so far, to one endpoint or to all."""
        log: list[dict[str, Any]] = self._do(do="log")
        return [each for each in log if endpoint is None or each["path"] == f"/v1/{endpoint}"]

    def forget_requests(self) -> None:
        self._do(do="forget")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
