"""Every Store keeps the contract; a new one joins here."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.contracts.store_contract import StoreContract
from tests.store.memory_store import MemoryStore

from penstock.core.history import HistoryLimits
from penstock.ports import Store
from penstock.store import open_store


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[..., Store]:
        return partial(open_store, "store.db", folder=str(tmp_path))


class TestPostgres(StoreContract):
    @pytest.fixture
    def open_store(self, database: str) -> Callable[..., Store]:
        return partial(open_store, database)


class TestMemory(StoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[..., Store]:
        store = MemoryStore()

        def opened(limits: HistoryLimits | None = None) -> Store:
            store.limits = limits or store.limits
            return store

        return opened
