"""The gate keeps the model's properties on a real Postgres table, whatever happens to the server meanwhile."""

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import SEARCH, few
from tests.engine.postgres_machine import KeyedMachine, Losing, Meeting, PostgresMachine
from tests.engine.postgres_mutants import POSTGRES_MUTANTS as MUTANTS
from tests.engine.world import Wrong

#: more of them: script/soak suite --search 10
LONG_ENOUGH = few(8)
#: where a mutant takes long to be caught by the usual seed, one that is quicker
SEEDS = {
    "a sweep drops what was staged for later slices too": 4,
    "advance without compare-and-set": 6,
    "an unknown outcome is taken for a commit": 3,
    "less 'compare with sink': a run does not ask the sink first": 12,
    "nothing is swept": 3,
    "plan anew on retry": 4,
    "recover leaves the ledger as it is": 8,
    "staging shared by all attempts": 4,
    "the ledger moves without compare-and-set": 4,
    "what is there is not counted": 3,
    "what was staged is dropped on an unknown outcome": 3,
}
#: those that need more than writers that meet
OF_STORES = (
    "holds n or more means already in",
    "less 'compare with sink': a run does not ask the sink first",
    "recover leaves the ledger as it is",
    "the chain is kept under a uid born in the store",
)


@pytest.mark.parametrize("machine", [PostgresMachine, KeyedMachine])
def test_properties_hold(machine: type[PostgresMachine], database: str) -> None:
    machine.url = database
    run_state_machine_as_test(machine, settings=LONG_ENOUGH)


def machine_for(name: str) -> type[PostgresMachine]:
    """The machine that looks for a mutant."""
    return Losing if name in OF_STORES else Meeting


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mistake_is_caught(name: str, database: str) -> None:
    machine = machine_for(name)
    machine.url = database
    with MUTANTS[name](), pytest.raises(Wrong):
        run_state_machine_as_test(seed(SEEDS.get(name, 1))(machine), settings=SEARCH)
