"""Those who bring orders into Postgres: each is told to, and what that costs is measured.

The hand-written merges and rustream read Parquet files, penstock reads a lake of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks import _orders as orders
from benchmarks import _peers as peers
from benchmarks._contenders import HEADER, rustream_at, told
from benchmarks._processes import Cost, cost_of, spending
from benchmarks._targets import EMPTY, FLOATS, HALF, Stock
from benchmarks._warm import Kept, Warm

PIPELINE = """\
  {name}:
    source: {{type: lake, warehouse: {warehouse}, namespace: {which}}}
    sink: {{type: postgres, url: "${{DATABASE_URL}}", own_schema: {name}}}
    streams:
      orders: {{into: {table}, key: [id], newer_than: updated_at}}
"""
#: rows of a statement: with 8 columns, more would be too many parameters for the server
RUSTREAM_ROWS = 8_000
RUSTREAM = """\
output: {{type: local, path: out}}
state_dir: state
ingest:
  input: {{type: local, path: {files}}}
  write_mode: upsert
  batch_size: {rows}
  tables:
    - {{file_pattern: "*.parquet", target_table: {table}, key_columns: [id]}}
"""


@dataclass(frozen=True)
class Ground:
    """Where they meet."""

    stock: Stock
    folder: Path
    #: times that each may be told
    runs: int

    @property
    def env(self) -> dict[str, str]:
        return orders.environment(self.stock.url) | {"RUST_LOG": "error"}

    def pipeline(self, name: str, which: str, table: str) -> str:
        """A pipeline of `all` rows or of a `few`, with a ledger of its own."""
        return PIPELINE.format(name=name, warehouse=self.stock.warehouse, which=which, table=table)


class Contender(Protocol):
    """One of them."""

    #: what is in its table before
    like: str

    def ready(self, run: int) -> None:
        """Just before: whoever is kept warm brings a few rows in."""
        ...

    def take(self, run: int, table: str) -> Cost:
        """Bring all rows into a table; what that cost."""
        ...


# ---------------------------------------------------------------- penstock


class PenstockWarm:
    """Has just moved a few rows; each run is of a pipeline of its own, so that all rows are new to it."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        self.stock, self.name = ground.stock, name
        self.like = EMPTY if "insert" in name else HALF
        file = ground.folder / f"{name}.yaml"
        pipelines = [ground.pipeline(f"{name}_{run}", "all", f"t_{name}_{run}") for run in range(ground.runs)]
        pipelines += [ground.pipeline(f"few_{name}_{run}", "few", f"few_{name}_{run}") for run in range(ground.runs)]
        file.write_text(HEADER + "".join(pipelines))
        self.process = stack.enter_context(Warm(file, ground.env))

    def ready(self, run: int) -> None:
        self.stock.fresh(f"few_{self.name}_{run}", EMPTY)
        self.process.run(f"few_{self.name}_{run}")

    def take(self, run: int, table: str) -> Cost:
        with spending(self.process.pid) as cost:
            said = self.process.run(f"{self.name}_{run}")
        print(f"    {told(said['steps'])}")
        accounted(self.stock, f"{self.name}_{run}", self.like)
        return cost[0]


class PenstockCold:
    """The command, from nothing: the start of Spark included."""

    like = HALF

    def __init__(self, ground: Ground, name: str, _stack: ExitStack) -> None:
        self.ground, self.name = ground, name

    def ready(self, run: int) -> None:
        return None

    def take(self, run: int, table: str) -> Cost:
        folder, schema = self.ground.folder / f"{self.name}_{run}", f"{self.name}_{run}"
        folder.mkdir()
        (folder / "shop.yaml").write_text(HEADER + self.ground.pipeline(schema, "all", table))
        cost = cost_of([orders.COMMAND, "run", "shop.yaml"], self.ground.env, folder)
        accounted(self.ground.stock, schema, self.like)
        return cost


def accounted(stock: Stock, schema: str, like: str) -> None:
    """SystemExit unless penstock has counted what became of each row."""
    there = (stock.rows + 1) // 2 if like == HALF else 0
    stock.counted(schema, stock.rows - there, there)


# ---------------------------------------------------------------- others


class Rustream:
    """Its command. It has no condition on what is newer, and writes neither numeric nor jsonb."""

    like = FLOATS

    def __init__(self, ground: Ground, name: str, _stack: ExitStack) -> None:
        self.ground, self.name = ground, name

    def ready(self, run: int) -> None:
        return None

    def take(self, run: int, table: str) -> Cost:
        stock, folder = self.ground.stock, self.ground.folder / f"{self.name}_{run}"
        folder.mkdir()
        files = stock.files("all", floats=True)
        said = rustream_at(stock.url) + RUSTREAM.format(files=files, rows=RUSTREAM_ROWS, table=table)
        (folder / "ingest.yaml").write_text(said)
        return cost_of([peers.program("rustream"), "ingest", "--config", "ingest.yaml"], self.ground.env, folder)


class ByHand:
    """A script that is kept warm and has just moved a few rows."""

    like = HALF

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        self.stock, self.name = ground.stock, name
        python = orders.PYTHON if "spark" in name else peers.program("python")
        # Spark says more than anyone wants to read.
        command = [python, "-m", f"benchmarks.peers.{name}"]
        self.process = stack.enter_context(Kept(command, ground.env, silent="spark" in name))

    def ready(self, run: int) -> None:
        self.stock.fresh(f"few_{self.name}_{run}", EMPTY)
        self.process.tell(f"few_{self.name}_{run} {self.stock.files('few')}")

    def take(self, run: int, table: str) -> Cost:
        with spending(self.process.pid) as cost:
            said = self.process.tell(f"{table} {self.stock.files('all')}")
        print(f"    {told(said['steps'])}")
        return cost[0]


#: all of them, in the order in which they take their turns
CONTENDERS: Mapping[str, type[PenstockWarm | PenstockCold | Rustream | ByHand]] = {
    "adbc_merge": ByHand,
    "penstock_upsert_warm": PenstockWarm,
    "penstock_insert_warm": PenstockWarm,
    "penstock_upsert_cold": PenstockCold,
    "rustream": Rustream,
    "spark_jdbc_merge": ByHand,
}


@contextmanager
def meeting(ground: Ground, names: Sequence[str]) -> Iterator[Mapping[str, Contender]]:
    """The contenders of these names; what they keep running ends with it."""
    with ExitStack() as stack:
        yield {name: CONTENDERS[name](ground, name, stack) for name in names}
