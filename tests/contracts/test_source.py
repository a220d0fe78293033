"""Every Source keeps the contract; a new one joins here."""

from pathlib import Path

import pytest
from tests.sources.lake.lakes import Foreign, Origin
from tests.sources.tables import Table

from penstock.testing.contracts.source import IncrementalContract, SourceContract


class TestPostgresKeyset(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database, cursor="updated_at", tiebreaker="id")


class TestPostgresUnique(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database, cursor="id", unique=True)


class TestPostgresRefresh(SourceContract):
    @pytest.fixture
    def origin(self, database: str) -> Table:
        return Table(database)


class TestLake(IncrementalContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> Origin:
        return Origin(tmp_path)


class TestLakeOfOthers(IncrementalContract):
    """A table that penstock did not make: its rows are numbered before they are read."""

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Foreign:
        return Foreign(tmp_path)
