"""Contents for tests, from the Arrow schema of their batches."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.types import Type
from penstock.links.arrow_types import type_of


def types_of(schema: pa.Schema) -> list[tuple[str, Type]]:
    """Each column with its type."""
    return [(field.name, type_of(field.type)) for field in schema]


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Each column as a content lists it."""
    return [{"name": name, "type": str(type_)} for name, type_ in types_of(schema)]
