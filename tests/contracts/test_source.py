"""Every Source keeps the contract; a new one joins here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.lake.lakes import Foreign, Origin
from tests.sources.rest.lists import List
from tests.sources.tables import STAMP, Table, execute

from penstock.ports import ExplainingSource, Gathering, Releasing, Source
from penstock.testing.contracts.source import IncrementalContract, SourceContract, drain
from penstock.testing.rest_server import RestServer


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

    def test_secrets_are_not_in_what_is_printed(self, source: Source, origin: Any) -> None:
        """Parts name files, which Iceberg spells with their scheme; nothing else may look like an address."""
        origin.options["catalog"] = {"s3.secret-access-key": "hunter2"}
        origin.arrive(1)
        source = origin.open()
        slice_ = drain(source, origin)[0].slice
        with source.reading(slice_) as reading:
            shown = f"{source!r} {reading!r} {slice_!r}".replace(f"file://{origin.lake.folder}", "")
        assert reading.parts
        assert "://" not in shown
        assert "hunter2" not in shown


class TestLake(LakeContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Origin:
        return Origin(tmp_path)


class TestLakeOfOthers(LakeContract):
    """A table that penstock did not make: its rows are numbered before they are read."""

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Foreign:
        return Foreign(tmp_path)


class RestContract(IncrementalContract):
    CAPABILITIES = frozenset({ExplainingSource, Gathering})


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


class TestRestWhole(SourceContract):
    """A list that does not filter by time."""

    CAPABILITIES = RestContract.CAPABILITIES

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Iterator[List]:
        with RestServer({"charges": {}}) as server:
            yield List(server, tmp_path)
