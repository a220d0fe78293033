"""Finds the entities that a filter matches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.core.ops import Layout
from penstock.core.types import Type
from penstock.lake.folding.irregular import make_value
from penstock.lake.folding.values import literal, text_of_column, text_of_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def matching(whole: DataFrame, layout: Layout, where: Mapping[str, Any]) -> DataFrame:
    """The keys of the entities that a filter matches, among those of a `Fold` of everything."""
    return whole.where("exists").where(_condition(layout, where)).select("ek")


def _condition(layout: Layout, where: Mapping[str, Any]) -> str:
    if "and" in where:
        return " and ".join(f"({_condition(layout, part)})" for part in where["and"])

    def texts(type_: Type) -> str:
        given = where["in"] if "in" in where else [where["eq"]]
        values = [make_value(each) for each in given]
        found = [text_of_json(literal(str(v["kind"])), literal(str(v["raw"])), type_) for v in values]
        return f"array({', '.join(found)})"

    name = where["field"]
    for i, column in enumerate(layout.scalars):
        if column.name == name:
            return f"coalesce(array_contains({texts(column.type)}, {text_of_column(f's{i}', column.type)}), false)"
    i, column = next((i, column) for i, column in enumerate(layout.multi) if column.name == name)
    own = f"transform(m{i}, x -> {text_of_column('x', column.type)})"
    return f"coalesce(arrays_overlap({own}, {texts(column.type)}), false)"
