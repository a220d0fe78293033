"""The gather step beside a sink that does not seal: scenarios that hold, and the mistakes that they catch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.gather_mutants import CAUGHT_BY, GATHER_MUTANTS, SCENARIOS, Scenario
from tests.engine.gathered_world import GatheredWorld
from tests.engine.machine import MEMORY, GatheredMachine
from tests.engine.test_machine import LONG_ENOUGH


@pytest.fixture
def world() -> Iterator[GatheredWorld]:
    folder = tempfile.mkdtemp(prefix="gathered-", dir=MEMORY)
    world = GatheredWorld(folder)
    yield world
    world.end()
    shutil.rmtree(folder)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_holds(world: GatheredWorld, scenario: Scenario) -> None:
    scenario(world)


def test_every_mutant_has_its_scenario() -> None:
    assert set(CAUGHT_BY) == set(GATHER_MUTANTS)
    assert set(CAUGHT_BY.values()) == set(SCENARIOS)


@pytest.mark.parametrize("name", sorted(GATHER_MUTANTS))
def test_mistake_is_caught(world: GatheredWorld, name: str) -> None:
    with GATHER_MUTANTS[name](), pytest.raises(AssertionError):
        CAUGHT_BY[name](world)


def test_properties_hold() -> None:
    run_state_machine_as_test(GatheredMachine, settings=LONG_ENOUGH)
