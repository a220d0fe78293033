"""Contents for tests, from the Arrow schema of their batches."""

from __future__ import annotations

import pyarrow as pa

from penstock.core.content import Column, Content
from penstock.core.types import Type, parse_type
from penstock.links.arrow_types import type_of


def types_of(schema: pa.Schema) -> list[tuple[str, Type]]:
    """Each column with its type."""
    return [(field.name, type_of(field.type)) for field in schema]


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """Each column as a content lists it."""
    return tuple(Column(name, type_) for name, type_ in types_of(schema))


def content(**types: str) -> Content:
    """A content of columns, each with its type in its string form."""
    return Content(tuple(Column(name, parse_type(type_)) for name, type_ in types.items()))
