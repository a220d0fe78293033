"""One cell of the kill matrix on the real command: kill at a point, change the source, run again, compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.compare import Comparison
from tests.acceptance.shop import Shop

CHANGES = ("arrive", "change", "both", "none")
STORES = ("sqlite", "postgres")
#: a run comes to these once, whatever the number of slices
ONCE = ("engine.leased", "gate.prepared", "engine.released")


@dataclass(frozen=True)
class Cell:
    """Where it is killed, which time, what changes before the restart, which store, which mover."""

    point: str
    nth: int = 2
    change: str = "both"
    store: str = "sqlite"
    mover: str = "loop"

    def run(self, database: str, folder: Path) -> Comparison:
        store = "${DATABASE_URL}" if self.store == "postgres" else ".penstock/store.db"
        shop = Shop.open(database, folder, store=store, mover=self.mover)
        nth = 1 if self.point in ONCE else self.nth
        found = shop.command.kill_at(self.point, "run", "shop.yaml", nth=nth)
        assert found["point"] == self.point
        if self.change in ("arrive", "both"):
            shop.arrive(3001, 3500)
        if self.change in ("change", "both"):
            shop.change(every=7, at=1)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        return shop.compared()
