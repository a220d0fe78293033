"""Every Source keeps the contract; a new one joins here."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.spooling import GatheringSource
from tests.harness.doubles import MemorySource, Rows
from tests.harness.rest_server import RestServer
from tests.sources.files import folders
from tests.sources.lake.lakes import Foreign, Origin
from tests.sources.outbox.shops import Notes
from tests.sources.rest.lists import ChangingList, Charges, List
from tests.sources.rest.test_parents import Cards
from tests.sources.tables import STAMP, Table, execute
from tests.sources.wal.logs import Orders

from penstock.links.spools import FolderSpools
from penstock.ports import (
    Awaiting,
    Discovering,
    Estimating,
    ExplainingSource,
    Gathering,
    Preparing,
    Releasing,
    Rewinding,
    Source,
)
from penstock.testing.contracts.source import (
    ChangesContract,
    GatheringContract,
    IncrementalContract,
    SourceContract,
)


class TestPostgresKeyset(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database, cursor="updated_at", tiebreaker="id")


class TestPostgresUnique(IncrementalContract):
    #: -1 is a place: before all rows
    nowhere = ("nowhere", "", "1.5", "2026-13-45", "9" * 40)

    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database, cursor="id", unique=True)


class TestPostgresByKeys(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database, cursor="updated_at", tiebreaker="id", first_load="keys")


class TestPostgresByBlocks(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        table = Table(database, cursor="updated_at", tiebreaker="id", first_load="blocks")
        execute(database, STAMP)
        return table


class TestPostgresRefresh(SourceContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database)


class LakeContract(IncrementalContract):
    CAPABILITIES = IncrementalContract.CAPABILITIES | {Releasing}

    SECRETS = ("hunter2",)

    def shown_addresses(self, origin: Origin) -> Sequence[str]:
        return (f"file://{origin.lake.folder}",)


class TestLake(LakeContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Origin:
        return Origin(tmp_path, catalog={"s3.secret-access-key": "hunter2"})


class TestLakeOfOthers(LakeContract):
    """A table that penstock did not make: its rows are numbered before they are read."""

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Foreign:
        return Foreign(tmp_path)


class RestContract(GatheringContract, IncrementalContract):
    CAPABILITIES = frozenset({Awaiting, Discovering, ExplainingSource, Gathering})


class TestRestByLastId(RestContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[List]:
        with RestServer({"charges": {}}) as server:
            yield List(server, tmp_path, time={"lag": 0})


class TestRestOldestFirstByToken(RestContract):
    EXACT_ROW_BUDGET = False

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[List]:
        with RestServer({"charges": {"order": "oldest", "paging": "token", "unit": "iso"}}) as server:
            paging = {"by": "token", "size": 40}
            yield List(server, tmp_path, order="oldest", paging=paging, time={"lag": 0, "unit": "iso"})


class TestRestWithVersions(RestContract):
    """A list whose rows are versions of objects: without changes, it is a list like any other."""

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[List]:
        with RestServer({"charges": {}}) as server:
            yield List(server, tmp_path, time={"lag": 0}, changes={"updated": "updated", "deleted": "gone"})


class TestRestWithChanges(RestContract, ChangesContract):
    """Objects are read again to find their changes, and versions are compared by time."""

    #: the objects of the server do not say that they have not changed
    UNCHANGED_ROWS_ONCE = False

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[ChangingList]:
        with RestServer({"charges": {}}) as server:
            yield ChangingList(server, tmp_path)


class TestWal(IncrementalContract):
    CAPABILITIES = frozenset({Estimating, ExplainingSource, Preparing, Releasing, Rewinding})
    EXACT_ROW_BUDGET = False

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Orders:
        return Orders(tmp_path)


class FilesContract(IncrementalContract):
    CAPABILITIES = frozenset({Discovering, ExplainingSource, Gathering, Rewinding})
    EXACT_ROW_BUDGET = False


class TestFilesOfParquet(FilesContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> folders.Orders:
        return folders.Orders(tmp_path, columns=folders.COLUMNS, primary_key=("id",))


class TestFilesOfLines(FilesContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> folders.Orders:
        return folders.Orders(tmp_path, "ndjson", columns=folders.COLUMNS)


class TestFilesOfFields(FilesContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> folders.Orders:
        return folders.Orders(tmp_path, "csv", columns=folders.COLUMNS)


class TestOutbox(IncrementalContract):
    CAPABILITIES = frozenset({Estimating, ExplainingSource, Preparing, Releasing})

    @pytest.fixture
    def origin(self, database: str) -> Notes:
        return Notes(database)


class TestRestWhole(GatheringContract):
    """A list that does not filter by time."""

    CAPABILITIES = RestContract.CAPABILITIES

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[List]:
        with RestServer({"charges": {}}) as server:
            yield List(server, tmp_path)


class TestRestBelowParents(GatheringContract):
    """A list below the objects of another one."""

    CAPABILITIES = RestContract.CAPABILITIES

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[Cards]:
        with RestServer({"customers": {}}) as server:
            yield Cards(server, tmp_path)


class TestStripe(RestContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[Charges]:
        with RestServer({"charges": {}}) as server:
            yield Charges(server, tmp_path)


class Changes(Origin):
    """A log of changes: several versions of a row, deletes, and parts that must stay in order."""

    def prepare(self) -> None:
        self.notes: dict[Hashable, Hashable] = {}
        self.land()

    def land(self, *parts: Sequence[tuple[int, str, str]]) -> None:
        """Land one slice of (id, note, change); each sequence is one part."""
        tables = [
            pa.table(
                {
                    "id": pa.array([id_ for id_, _, _ in rows], pa.int64()),
                    "note": pa.array([note for _, note, _ in rows], pa.string()),
                    "_change": pa.array([change for _, _, change in rows], pa.string()),
                }
            )
            for rows in parts or ((),)
        ]
        self.lake.land(*tables, changes=True)
        for id_, note, change in (row for part in parts for row in part):
            self.notes.pop(id_, None)
            if change == "upsert":
                self.notes[id_] = note

    def arrive(self, count: int) -> None:
        if count:
            self.land([(self.count + n, f"note {n}", "upsert") for n in range(1, count + 1)])
            self.count += count

    def change(self) -> None:
        self.land(
            [(1, "second", "upsert"), (2, "", "delete"), (3, "", "delete"), (3, "again", "upsert")],
            [(1, "third", "upsert"), (2, "again", "upsert"), (4, "last", "upsert"), (4, "", "delete")],
            [(2, "", "delete"), (3, "newest", "upsert")],
        )
        self.land([(5, "", "delete"), (1, "fourth", "upsert")])

    def current(self) -> Mapping[Hashable, Hashable]:
        return self.notes

    def tell_changes(self, batch: pa.RecordBatch) -> Sequence[tuple[Hashable, Hashable, str]]:
        columns = (batch.column(name).to_pylist() for name in ("id", "note", "_change"))
        return list(zip(*columns, strict=True))


class TestLakeOfChanges(LakeContract, ChangesContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Changes:
        return Changes(tmp_path)


class Memory:
    """Rows in memory."""

    stream = "orders"

    def __init__(self) -> None:
        self.log = Rows()

    def open(self) -> Source:
        return self.open_with(self.stream, {})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        return MemorySource({stream: self.log}, most=1000)

    def arrive(self, count: int) -> None:
        for _ in range(count):
            self.log.arrive(self.log.arrived)

    def rows(self) -> Sequence[Hashable]:
        return [(place, *row) for place, row in self.log.places.items()]

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def traces(self) -> Hashable:
        return tuple(self.rows())


class TestMemory(IncrementalContract):
    CAPABILITIES = IncrementalContract.CAPABILITIES | {Releasing}

    @pytest.fixture
    def origin(self) -> Memory:
        return Memory()


class Pages(Memory):
    """Rows in memory that are gathered into spools."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.spools = FolderSpools(str(folder), "contract")

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        return GatheringSource({stream: self.log}, self.spools, most=1000, page_rows=100)

    def traces(self) -> Hashable:
        return (*self.rows(), *sorted(map(str, self.folder.rglob("*"))))

    def vanish(self) -> None:
        self.log.places.clear()


class TestPages(GatheringContract, IncrementalContract):
    CAPABILITIES = IncrementalContract.CAPABILITIES | {Gathering, Releasing}

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Pages:
        return Pages(tmp_path)
