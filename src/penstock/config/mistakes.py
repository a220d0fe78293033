"""Mistakes in a pipeline file, each with its line, and the error that lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ConfigError

#: the path from the top of the file to a value: keys, and indexes of lists
Path = tuple[str | int, ...]

UNKNOWN = "unknown key"
#: what other tools call the same key or type
SYNONYMS = {
    "url": ("host", "hostname", "dsn", "uri", "connection", "connection_string", "database", "dbname", "address"),
    "directory": ("path", "folder", "location", "output"),
    "cursor": ("incremental_column", "replication_key", "watermark", "updated_at", "order_by", "incremental"),
    "slice_bytes": ("batch_size", "chunk_size", "batch_bytes", "fetch_size"),
    "columns": ("select", "fields"),
    "exclude": ("ignore", "skip"),
    "tiebreaker": ("primary_key", "pk", "tie_breaker"),
    "lake": ("iceberg", "warehouse", "catalog"),
    "files": ("parquet", "csv", "json", "ndjson", "jsonl", "local", "folder", "directory"),
    "postgres": ("pg", "psql", "database"),
    "true": ("yes", "on", "y"),
    "false": ("no", "off", "n"),
}
_PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake."""

    #: line in the file, counted from 1, or number of the override
    line: int
    #: the path of the value
    path: Path
    #: what is wrong and how to correct it
    text: str
    #: the override, without its value: `--set source.schema=…`; None if the mistake is in the file
    override: str | None = None

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


def dotted(path: Path) -> str:
    """A path in dotted notation: `pipelines.shop.streams."public.orders".columns[0]`."""
    words = ""
    for step in path:
        if isinstance(step, int):
            words += f"[{step}]"
        else:
            plain = visible(step) if _PLAIN.fullmatch(step) else f'"{visible(step)}"'
            words += f".{plain}" if words else plain
    return words


def visible(text: str, most: int = 60) -> str:
    """A text on one line, with control characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def config_error(file: str, mistakes: Iterable[Mistake]) -> ConfigError:
    """The error that lists every mistake: those of the file by line, then those of the overrides."""
    listed = sorted(set(mistakes), key=_order)
    lines = [f"{mistake.override or f'{file}:{mistake.line}'}: {mistake}" for mistake in listed]
    wrong = {mistake.override is None for mistake in listed}
    where = " and ".join([file] * (True in wrong) + ["--set"] * (False in wrong))
    head = [] if len(lines) == 1 else [f"{len(lines)} mistakes in {where}"]
    if False not in wrong:
        next_step = "correct the file, then run the same command again"
    else:
        next_step = "correct the file and --set, then run again" if True in wrong else "correct --set, then run again"
    return ConfigError("\n".join(head + lines), safe="Nothing was read or written.", next_step=next_step)


def _order(mistake: Mistake) -> tuple[bool, int, str, str]:
    # Paths mix strings and integers, which cannot be compared.
    return (mistake.override is not None, mistake.line, dotted(mistake.path), mistake.text)
