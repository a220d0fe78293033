"""A shaped source keeps the contract of sources, whatever is inside."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.shaping.shapes import SALT
from tests.sources import tables
from tests.sources.lake.lakes import Origin as LakeOrigin
from tests.sources.tables import Table

from penstock.ports import Releasing, Source
from penstock.shaping.options import Shape
from penstock.shaping.source import ShapedSource
from penstock.testing.contracts.source import IncrementalContract, Origin, SourceContract

ORDERS = Shape.model_validate(
    {
        "where": "id > 0",
        "select": ["id", "status", "amount", "updated_at"],
        "cast": {"amount": "text"},
        "hash": ["status"],
        "salt": SALT,
        "mask": {"updated_at": "redact"},
        "rename": {"id": "order_id"},
    }
)
NOTES = Shape.model_validate({"where": "id > 0", "hash": ["note"], "salt": SALT, "rename": {"id": "order_id"}})


class Around:
    """The rows of another origin, read in a shape."""

    def __init__(self, inside: Origin, shape: Shape) -> None:
        self.inside, self.shape = inside, shape
        self.stream = inside.stream

    def open(self) -> Source:
        return ShapedSource(self.inside.open(), {self.stream: self.shape})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        return ShapedSource(self.inside.open_with(stream, options), {})

    def arrive(self, count: int) -> None:
        self.inside.arrive(count)

    def rows(self) -> Sequence[Hashable]:
        return self.inside.rows()

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        ids: list[Hashable] = batch.column("order_id").to_pylist()
        return ids

    def traces(self) -> Hashable:
        return self.inside.traces()


@pytest.fixture(autouse=True)
def _close_sources() -> Any:
    yield
    while tables.OPENED:
        tables.OPENED.pop().close()


class TestShapedKeyset(IncrementalContract):
    @pytest.fixture
    def origin(self, database: str) -> Around:
        return Around(Table(database, cursor="updated_at", tiebreaker="id"), ORDERS)


class TestShapedRefresh(SourceContract):
    @pytest.fixture
    def origin(self, database: str) -> Around:
        return Around(Table(database), ORDERS)


class TestShapedLake(IncrementalContract):
    CAPABILITIES = IncrementalContract.CAPABILITIES | {Releasing}
    SECRETS = (SALT,)

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Around:
        return Around(LakeOrigin(tmp_path), NOTES)

    def shown_addresses(self, origin: Around) -> Sequence[str]:
        assert isinstance(origin.inside, LakeOrigin)
        return (f"file://{origin.inside.lake.folder}",)
