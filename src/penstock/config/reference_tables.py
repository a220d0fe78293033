"""Generates the tables of keys in the reference page, between markers.

A marker names a mapping as `keys.models` does: `<!-- keys: sink lake upkeep -->` … `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from pydantic import BaseModel

from penstock.config.keys import Key, keys

_MARKED = re.compile(r"(?P<begin><!-- keys: (?P<name>[^>]+?) -->\n).*?(?P<end><!-- end -->\n)", re.DOTALL)


def tables_in(page: str) -> list[str]:
    """The names of the mappings whose tables a page contains."""
    return [match["name"] for match in _MARKED.finditer(page)]


def fill_tables(page: str, models: Mapping[str, type[BaseModel]]) -> str:
    """Regenerate the tables of a page; KeyError if a marker names no mapping."""
    return _MARKED.sub(lambda match: match["begin"] + table(models[match["name"]]) + match["end"], page)


def table(model: type[BaseModel]) -> str:
    """A model's keys as a Markdown table."""
    rows = [f"| `{key.name}` | {_default(key)} | {key.meaning} |\n" for key in keys(model)]
    return "\n| key | default | meaning |\n|---|---|---|\n" + "".join(rows) + "\n"


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.default_text:
        return key.default_text
    if isinstance(key.field.default, timedelta):
        days = key.field.default / timedelta(days=1)
        return f"{days:g} days"
    if key.default is None:
        return "none"
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"
