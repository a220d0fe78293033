"""The gate keeps the model's properties on a real lake table, whatever happens to the table meanwhile."""

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.lake_machine import Focused, LakeMachine
from tests.engine.lake_mutants import LAKE_MUTANTS as MUTANTS
from tests.engine.machine import SEARCH, few
from tests.engine.world import Wrong

#: more of them: script/soak suite --search 10
LONG_ENOUGH = few(8)

#: where a mutant takes long to be caught by seed 1, one that is quicker; found by script/soak mutants
SEEDS = {
    "PyIceberg's retries are left on: a conflicting append is put on top of what came first": 13,
    "a chain that main has passed by is believed": 6,
    "a landing does not ask the chain": 15,
    "a slice without rows is a change of properties alone": 20,
    "committed again without new numbers": 17,
    "recover leaves the chain as it is": 19,
    "recover starts the numbers from what main shows": 4,
    "the head is the highest number that rows have": 6,
    "the snapshot is not asserted, nor its place in the sequence": 13,
    "what was put aside is deleted on an unknown outcome": 4,
}


def test_properties_hold() -> None:
    run_state_machine_as_test(LakeMachine, settings=LONG_ENOUGH)


def machine_for(name: str) -> type[LakeMachine]:
    """The machine that looks for a mutant."""
    return Focused


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mistake_is_caught(name: str) -> None:
    with MUTANTS[name](), pytest.raises(Wrong):
        run_state_machine_as_test(seed(SEEDS.get(name, 1))(machine_for(name)), settings=SEARCH)
