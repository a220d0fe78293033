"""Gather and seal keep the model's properties under every order of faults that the machine can think of."""

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import SealedMachine, SealedNotGathered
from tests.engine.sealed_mutants import SEALED_MUTANTS as MUTANTS
from tests.engine.test_machine import LONG_ENOUGH

#: the examples in which a mutant must be caught; none is shrunk
SEARCH = settings(LONG_ENOUGH, max_examples=2000, database=None, phases=[Phase.generate])
#: where a mutant takes long to be caught by seed 1, one that is quicker; found by script/soak mutants
SEEDS = {
    "a process without the lease may seal": 40,
    "a sealed slice is moved again, and the newest seal counts": 2,
    "less 'seal in spool': the seal is in the store alone": 3,
    "less 'withdraw': recover withdraws no open slice": 9,
    "recover drops a sealed slice like any other": 2,
    "staging shared by all attempts": 20,
    "unsealed spool": 2,
    "what is staged is not looked at before it is delivered again": 2,
}


@pytest.mark.parametrize("machine", [SealedMachine, SealedNotGathered])
def test_properties_hold(machine: type[SealedMachine]) -> None:
    run_state_machine_as_test(machine, settings=LONG_ENOUGH)


def machine_for(name: str) -> type[SealedMachine]:
    """The machine that looks for a mutant."""
    return SealedNotGathered


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mistake_is_caught(name: str) -> None:
    with MUTANTS[name](), pytest.raises(AssertionError):
        run_state_machine_as_test(seed(SEEDS.get(name, 1))(machine_for(name)), settings=SEARCH)
