"""The gate keeps the model's properties on a real lake table, whatever happens to the table meanwhile."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.lake_machine import Focused, LakeMachine
from tests.engine.lake_mutants import LAKE_MUTANTS
from tests.engine.world import Wrong

#: a slice takes a hundred times as long as in a folder: few examples, and none is shrunk
LONG_ENOUGH = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
#: the examples in which a mutant must be caught
SEARCH = settings(LONG_ENOUGH, max_examples=60, stateful_step_count=12, database=None, phases=[Phase.generate])

#: where a mutant takes long to be caught by the usual seed, one that is quicker
SEEDS = {"a landing does not ask the chain": 11}


def test_properties_hold() -> None:
    run_state_machine_as_test(LakeMachine, settings=LONG_ENOUGH)


@pytest.mark.parametrize("name", sorted(LAKE_MUTANTS))
def test_mistake_is_caught(name: str) -> None:
    with LAKE_MUTANTS[name](), pytest.raises(Wrong):
        run_state_machine_as_test(seed(SEEDS.get(name, 1))(Focused), settings=SEARCH)
