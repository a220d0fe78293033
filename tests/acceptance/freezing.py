"""A run frozen until its lease has passed and another has gone on: whatever the sink, it ends the same way."""

from __future__ import annotations

import time

from tests.acceptance.shop import Shop
from tests.harness.faults import Outcome

#: long enough that the moment of the freeze is hardly ever that of a heartbeat, which would keep the store locked
LEASE = 4.0


def past_its_lease() -> None:
    time.sleep(LEASE + 0.5)


def check_replaced(woken: Outcome) -> None:
    """One that was away says so, and that nothing came of it."""
    assert woken.code == 4
    assert "sent no heartbeat for longer than its lease (frozen or cut off) and was replaced" in woken.err
    assert "Nothing was lost and nothing delivered twice." in woken.err


def frozen_while_another_goes_on(shop: Shop, point: str) -> None:
    """A second run finishes the slice and two more; the first, woken, puts nothing in twice and says what happened."""
    with shop.command.frozen("run", "shop.yaml", point=point, nth=2) as first:
        past_its_lease()
        second = shop.command.run("run", "shop.yaml", "--json")
        assert second.code == 0, second.err
        done = [m["number"] for m in second.messages if m["type"] == "state"]
        assert done[0] == 2
        assert len(done) >= 3
    check_replaced(first.end())
