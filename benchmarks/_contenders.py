"""Those who bring the `orders` table out of Postgres: each is told to, and what that costs is measured.

What they write lies below a folder that is new for each run, so that it can be counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import unquote, urlsplit

from benchmarks import _orders as orders
from benchmarks import _peers as peers
from benchmarks._processes import Cost, cost_of, spending
from benchmarks._warm import Kept, Warm

#: the table, a small one to warm up with, and the same rows for a reader that cannot read a numeric
TABLE, FEW, FLOATS = "orders", "orders_few", "orders_float"
FEW_ROWS = 200_000

HEADER = "pipelines:\n"
PIPELINE = """\
  {name}:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {sink}
    streams:
      orders: {{table: {table}, cursor: updated_at, tiebreaker: id}}
"""
#: where a pipeline's files land, relative to the pipeline file
SINKS = {
    "files": "{{type: files, directory: out/{name}}}",
    "lake": "{{type: lake, warehouse: lake, namespace: {name}}}",
}
LANDED = {"files": "out/{name}", "lake": "lake/{name}"}

RUSTREAM_AT = "postgres: {{host: {host}, port: {port}, database: {database}, user: {user}, password: {password}}}\n"
RUSTREAM = """\
output: {{type: local, path: out}}
batch_size: 100000
state_dir: state
tables:
  - {{name: {table}, incremental_column: updated_at, incremental_tiebreaker_column: id}}
"""


@dataclass(frozen=True)
class Ground:
    """Where they meet: the database and how many rows its table has."""

    url: str
    folder: Path
    rows: int
    #: times that each may be told
    runs: int

    @property
    def env(self) -> dict[str, str]:
        quiet = {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR", "RUST_LOG": "error"}
        return orders.environment(self.url) | quiet

    def below(self, name: str) -> Self:
        """The same with a folder of its own below this one."""
        (self.folder / name).mkdir()
        return replace(self, folder=self.folder / name)


class Contender(Protocol):
    """One of them."""

    def take(self, run: int) -> tuple[Cost, Path | None]:
        """Bring all rows out once more; what that cost, and the folder below which the files are, if there are any."""
        ...


def pipeline(sink: str, name: str, table: str = TABLE) -> str:
    """A pipeline of the table, as a pipeline file says it."""
    return PIPELINE.format(name=name, sink=SINKS[sink].format(name=name), table=table)


def rustream_at(url: str) -> str:
    """Where rustream finds the database: the first line of what it wants to know."""
    parts = urlsplit(url)
    return RUSTREAM_AT.format(
        host=parts.hostname,
        port=parts.port,
        database=parts.path.lstrip("/"),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def rustream_file(url: str, table: str = FLOATS) -> str:
    """What rustream wants to know."""
    return rustream_at(url) + RUSTREAM.format(table=table)


def dlt_command(folder: Path, backend: str, *more: str) -> list[str]:
    return [peers.program("python"), str(peers.SCRIPTS / "dlt_load.py"), TABLE, str(folder), backend, *more]


def adbc_command(*more: str) -> list[str]:
    return [peers.program("python"), str(peers.SCRIPTS / "adbc.py"), TABLE, *more]


# ---------------------------------------------------------------- commands, started anew for each run


def copy(ground: Ground, _folder: Path) -> list[str]:
    """One COPY by psql, thrown away: as fast as the server sends to one client."""
    return ["psql", "-qX", ground.url, "-o", os.devnull, "-c", f"COPY {TABLE} TO STDOUT (FORMAT binary)"]


def adbc(_ground: Ground, folder: Path) -> list[str]:
    (folder / "out").mkdir()
    return adbc_command("out/orders.parquet")


def rustream(ground: Ground, folder: Path) -> list[str]:
    (folder / "sync.yaml").write_text(rustream_file(ground.url))
    return [peers.program("rustream"), "sync", "--config", "sync.yaml"]


def dlt(backend: str) -> Callable[[Ground, Path], list[str]]:
    return lambda _ground, folder: dlt_command(folder, backend)


def penstock(sink: str) -> Callable[[Ground, Path], list[str]]:
    """The command, from nothing: the start of Spark included."""

    def words(_ground: Ground, folder: Path) -> list[str]:
        (folder / "shop.yaml").write_text(HEADER + pipeline(sink, "shop"))
        return [orders.COMMAND, "run", "shop.yaml"]

    return words


COMMANDS: Mapping[str, Callable[[Ground, Path], list[str]]] = {
    "copy": copy,
    "adbc": adbc,
    "penstock_files_cold": penstock("files"),
    "penstock_lake_cold": penstock("lake"),
    "rustream": rustream,
    "dlt_connectorx": dlt("connectorx"),
    "dlt_connectorx_stream": dlt("connectorx_stream"),
    "dlt_pyarrow": dlt("pyarrow"),
}


class Command:
    """One of these commands, in a folder of each run."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.ground, self.name = ground, name

    def take(self, run: int) -> tuple[Cost, Path | None]:
        folder = self.ground.folder / f"{self.name}-{run}"
        folder.mkdir()
        cost = cost_of(COMMANDS[self.name](self.ground, folder), self.ground.env, folder)
        # dlt keeps a copy of each file in its state.
        landed = folder / ("lake" if self.name == "penstock_lake_cold" else "out")
        return cost, None if self.name == "copy" else landed


# ---------------------------------------------------------------- processes that are kept warm


class PenstockWarm:
    """Has just moved a few rows; each run is of a pipeline of its own, so that all rows are new to it."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        self.sink = name.split("_")[1]
        self.folder = ground.folder / name
        self.folder.mkdir()
        each = [(f"{way}_{run}", table) for run in range(ground.runs) for way, table in (("few", FEW), ("all", TABLE))]
        file = self.folder / "shop.yaml"
        file.write_text(HEADER + "".join(pipeline(self.sink, name, table) for name, table in [("few", FEW), *each]))
        self.process = stack.enter_context(Warm(file, ground.env))
        self.process.run("few")

    def take(self, run: int) -> tuple[Cost, Path]:
        self.process.run(f"few_{run}")
        with spending(self.process.pid) as cost:
            said = self.process.run(f"all_{run}")
        print(f"    {told(said['steps'])}")
        return cost[0], self.folder / LANDED[self.sink].format(name=f"all_{run}")


class SparkJdbc:
    """Has just moved a few rows."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        self.rows = ground.rows
        self.folder = ground.folder / name
        self.folder.mkdir()
        command = [orders.PYTHON, "-m", "benchmarks.peers.spark_jdbc"]
        # Spark says more than anyone wants to read.
        self.process = stack.enter_context(Kept(command, ground.env, silent=True))
        self.process.tell(f"{FEW} {FEW_ROWS} {self.folder / 'few'}")

    def take(self, run: int) -> tuple[Cost, Path]:
        out = self.folder / f"all_{run}"
        self.process.tell(f"{FEW} {FEW_ROWS} {self.folder / f'few_{run}'}")
        with spending(self.process.pid) as cost:
            self.process.tell(f"{TABLE} {self.rows} {out}")
        return cost[0], out


WARM: Mapping[str, type[PenstockWarm | SparkJdbc]] = {
    "penstock_files_warm": PenstockWarm,
    "penstock_lake_warm": PenstockWarm,
    "spark_jdbc": SparkJdbc,
}
#: those that need the peers' environment
OTHERS = {"adbc", "rustream", "dlt_connectorx", "dlt_connectorx_stream", "dlt_pyarrow"}
#: all of them, in the order in which they take their turns
NAMES = (
    "copy",
    "adbc",
    "penstock_files_warm",
    "penstock_lake_warm",
    "penstock_files_cold",
    "penstock_lake_cold",
    "rustream",
    "dlt_connectorx",
    "dlt_connectorx_stream",
    "dlt_pyarrow",
    "spark_jdbc",
)


@contextmanager
def meeting(ground: Ground, names: Sequence[str]) -> Iterator[Mapping[str, Contender]]:
    """The contenders of these names, each ready to begin; what they keep running ends with it."""
    if set(names) & OTHERS:
        peers.program("python")
    with ExitStack() as stack:
        yield {name: WARM[name](ground, name, stack) if name in WARM else Command(ground, name) for name in names}


def told(steps: Sequence[tuple[str, float]]) -> str:
    """Where a run's seconds went, by what was said when each step was over."""
    spent: dict[str, float] = {}
    last = 0.0
    for step, moment in steps:
        spent[step] = spent.get(step, 0.0) + moment - last
        last = moment
    return ", ".join(f"{step} {seconds:.2f}" for step, seconds in spent.items() if seconds >= 0.005)
