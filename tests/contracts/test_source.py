"""Every Source keeps the contract; a new one joins here."""

import pytest
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
