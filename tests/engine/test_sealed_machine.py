"""Gather and seal keep the model's properties under every order of faults that the machine can think of."""

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import SealedMachine, SealedNotGathered
from tests.engine.sealed_mutants import SEALED_MUTANTS
from tests.engine.test_machine import LONG_ENOUGH

#: the examples in which a mutant must be caught; none is shrunk
SEARCH = settings(LONG_ENOUGH, max_examples=2000, database=None, phases=[Phase.generate])
#: where a mutant takes long to be caught by the usual seed, one that is quicker
SEEDS = {
    "a process without the lease may seal": 8,
    "less 'seal in spool': the seal is in the store alone": 5,
    "receiver ignores its open slice": 4,
    "staging shared by all attempts": 5,
}


@pytest.mark.parametrize("machine", [SealedMachine, SealedNotGathered])
def test_properties_hold(machine: type[SealedMachine]) -> None:
    run_state_machine_as_test(machine, settings=LONG_ENOUGH)


@pytest.mark.parametrize("name", sorted(SEALED_MUTANTS))
def test_mistake_is_caught(name: str) -> None:
    with SEALED_MUTANTS[name](), pytest.raises(AssertionError):
        run_state_machine_as_test(seed(SEEDS.get(name, 1))(SealedNotGathered), settings=SEARCH)
