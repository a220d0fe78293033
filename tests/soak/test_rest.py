"""A short seed of the rest source's fault run, into each sink."""

from pathlib import Path

import pytest

from tests.soak.rest import SINKS, Plan, soak

# Even a machine that is busy with other tests sends more than 15 requests in its quickest second.
PLAN = Plan(objects=250, kills=3, life=(0.3, 2.0), retries=9, rate=15)


@pytest.mark.parametrize("sink", SINKS)
def test_a_short_seed(sink: str, database: str, tmp_path: Path) -> None:
    result = soak(16, sink, PLAN, tmp_path, database)
    assert result.wrong == []
    assert result.kills == PLAN.kills
    assert result.statuses["429"] > 0
    assert result.objects >= 8 * PLAN.objects + result.arrived
