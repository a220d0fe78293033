"""Another machine takes over without the spool of an open slice: it stops and says so, and nothing is doubled."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.rest_shop import RestShop
from tests.harness.faults import Command, Outcome

SINK = '{type: postgres, url: "${DATABASE_URL}"}'
LEASE = 2.0
STREAM = {"charges": "{time: {lag: 0}, mode: append, create: true}"}


class Machines:
    """Two folders with the same pipeline file, one store and one sink in Postgres."""

    def __init__(self, shop: RestShop, database: str) -> None:
        self.shop, self.database = shop, database
        self.commands = []
        for name in ("one", "two"):
            folder = shop.folder / name
            folder.mkdir()
            shop.write(STREAM, sink=SINK, name=f"{name}/shop.yaml")
            path = folder / "shop.yaml"
            text = path.read_text().replace("store: .penstock/store.db", 'store: "${DATABASE_URL}"')
            path.write_text(text.replace("    slice_bytes:", f"    lease_seconds: {LEASE}\n    slice_bytes:"))
            self.commands.append(Command(folder, "loop", shop.command.environment))

    def run(self, number: int, *words: str) -> Outcome:
        return self.commands[number].run(*(words or ("run",)), "shop.yaml")

    def differences(self) -> dict[str, int]:
        with psycopg.connect(self.database) as db:
            found = Counter(id_ for (id_,) in db.execute("SELECT id FROM charges").fetchall())
        found.subtract(id_ for id_, _ in self.shop.server.objects("charges"))
        return {id_: count for id_, count in found.items() if count}


def recover_on_the_second(machines: Machines) -> None:
    stopped = machines.run(1)
    assert stopped.code == 1, stopped.err
    assert "its gathered spool" in stopped.err
    assert "is gone or damaged" in stopped.err
    recovered = machines.commands[1].run("state", "recover", "shop.yaml", "--yes")
    assert recovered.code == 0, recovered.err
    done = machines.run(1)
    assert done.code == 0, done.err


@pytest.mark.parametrize("point", ["gate.intended", "gate.moved"])
def test_the_first_machine_is_gone(point: str, database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        machines = Machines(shop, database)
        shop.server.arrive("charges", 1000)
        machines.commands[0].kill_at(point, "run", "shop.yaml", nth=2)
        shop.server.arrive("charges", 100)
        recover_on_the_second(machines)
        assert machines.differences() == {}
        # The first machine comes back, with the spool of a slice that was dropped.
        shop.server.arrive("charges", 100)
        done = machines.run(0)
        assert done.code == 0, done.err
        assert machines.differences() == {}


@pytest.mark.parametrize("point", ["gate.spooled", "gate.intended", "gate.moved"])
def test_the_first_machine_wakes_up_later(point: str, database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        machines = Machines(shop, database)
        shop.server.arrive("charges", 1000)
        with machines.commands[0].frozen("run", "shop.yaml", point=point, nth=2) as first:
            shop.server.arrive("charges", 100)
            time.sleep(LEASE + 0.5)
            if point == "gate.spooled":
                # Nothing was intended yet: the second machine asks the API itself.
                done = machines.run(1)
                assert done.code == 0, done.err
            else:
                recover_on_the_second(machines)
            assert machines.differences() == {}
        ended = first.end()
        assert ended.code == 4, ended.err
        assert "Nothing was lost and nothing delivered twice." in ended.err
        assert machines.differences() == {}
        done = machines.run(1)
        assert done.code == 0, done.err
        assert machines.differences() == {}


def test_a_slice_that_the_sink_holds_needs_no_spool(database: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop:
        machines = Machines(shop, database)
        shop.server.arrive("charges", 1000)
        machines.commands[0].kill_at("gate.committed", "run", "shop.yaml", nth=2)
        shop.server.arrive("charges", 100)
        done = machines.run(1)
        assert done.code == 0, done.err
        assert machines.differences() == {}
