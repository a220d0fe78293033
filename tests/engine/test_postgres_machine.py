"""The gate keeps the model's properties on a real Postgres table, whatever happens to the server meanwhile."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.postgres_machine import KeyedMachine, PostgresMachine

#: as in the lake, few examples, and none is shrunk
LONG_ENOUGH = settings(
    max_examples=3,
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.parametrize("machine", [PostgresMachine, KeyedMachine])
def test_properties_hold(machine: type[PostgresMachine], database: str) -> None:
    machine.url = database
    run_state_machine_as_test(machine, settings=LONG_ENOUGH)
