"""The gate keeps the model's properties on a real Postgres table, whatever happens to the server meanwhile."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.postgres_machine import Focused, KeyedMachine, PostgresMachine
from tests.engine.postgres_mutants import POSTGRES_MUTANTS
from tests.engine.world import Wrong

#: as in the lake, few examples, and none is shrunk
LONG_ENOUGH = settings(
    max_examples=3,
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
#: the examples in which a mutant must be caught
SEARCH = settings(LONG_ENOUGH, max_examples=60, stateful_step_count=12, database=None, phases=[Phase.generate])


@pytest.mark.parametrize("machine", [PostgresMachine, KeyedMachine])
def test_properties_hold(machine: type[PostgresMachine], database: str) -> None:
    machine.url = database
    run_state_machine_as_test(machine, settings=LONG_ENOUGH)


@pytest.mark.parametrize("name", sorted(POSTGRES_MUTANTS))
def test_mistake_is_caught(name: str, database: str) -> None:
    Focused.url = database
    with POSTGRES_MUTANTS[name](), pytest.raises(Wrong):
        run_state_machine_as_test(seed(1)(Focused), settings=SEARCH)
