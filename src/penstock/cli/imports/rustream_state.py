"""rustream's watermarks, and the keys of a pipeline's streams that they stand for."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.imports.rustream_config import Config, Table
from penstock.config import File
from penstock.config.pipeline_choice import require_streams
from penstock.errors import InputError, StreamRefused, refuse_all

_FILE = "rustream_state.db"
_FOLDER = ".rustream_state"
_WITH_CURSOR = "SELECT table_name, watermark_value, cursor_value FROM watermarks"
#: as earlier versions have kept it
_WITHOUT_CURSOR = "SELECT table_name, watermark_value, NULL FROM watermarks"


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far rustream has read a table, as texts."""

    value: str
    #: of the tiebreaker; None: none was saved
    cursor: str | None


def find_state(given: str | None, configured: str | None) -> str | None:
    """The state's file; None: rustream has kept none. InputError if a place that was named has none."""
    place = given or configured or _FOLDER
    path = os.path.join(place, _FILE) if os.path.isdir(place) else place
    if os.path.isfile(path):
        return path
    if given is None:
        return None
    raise InputError(
        f"there is no state of rustream at {path}",
        next_step=f"name the folder with {_FILE}, or that file; without --state it is `state_dir` of the configuration",
    )


def read_watermarks(path: str) -> dict[str, Watermark]:
    """The watermarks by rustream's names of the tables. The file is only read."""
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            columns = {row[1] for row in db.execute("PRAGMA table_info(watermarks)")}
            found = db.execute(_WITH_CURSOR if "cursor_value" in columns else _WITHOUT_CURSOR)
            return {name: Watermark(value, at) for name, value, at in found}
    except sqlite3.Error as error:
        raise InputError(
            f"{path} cannot be read as rustream's state: {error}",
            next_step="name the folder in which rustream keeps rustream_state.db",
        ) from None


def keys_for(
    file: File, pipeline: str, config: Config, watermarks: Mapping[str, Watermark], chosen: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """The key behind which each stream continues. StreamRefused for each watermark that cannot be taken over."""
    tables = {stream_of(each, config): each for each in config.tables or () if each.key}
    known = [name for name in file.pipelines[pipeline].streams if name in tables]
    require_streams(chosen, known, pipeline)
    keys: dict[str, tuple[str, ...]] = {}
    problems: list[StreamRefused] = []
    for name in dict.fromkeys(chosen or known):
        table = tables[name]
        watermark = watermarks.get(table.full_name)
        if watermark is None:
            # rustream has not read it yet: neither has penstock.
            continue
        if (problem := _find_problem(name, table, watermark)) is not None:
            problems.append(problem.at(pipeline=pipeline, stream=name))  # type: ignore[arg-type]
            continue
        both = len(table.key) > 1 and watermark.cursor is not None
        keys[name] = (watermark.value, watermark.cursor or "") if both else (watermark.value,)
    refuse_all(problems)
    if not keys:
        raise InputError(
            "rustream has no watermark of these tables: there is nothing to take over",
            next_step=f"run `penstock run {file.path}`: it reads them from the beginning",
        )
    return keys


def _find_problem(stream: str, table: Table, watermark: Watermark) -> StreamRefused | None:
    if len(table.key) > 1 and watermark.cursor is None:
        return StreamRefused(
            f"rustream's watermark of {table.full_name} ({table.key[0]} = {watermark.value}) has no tiebreaker: of the "
            "rows with this value, some may be delivered and some not",
            next_step="run rustream once more with `incremental_tiebreaker_column`, which it asks to reset for; or "
            "leave the stream out with `--stream`, so that its first run reads all rows",
            stream=stream,
        )
    if len(table.key) == 1 and not table.incremental_column_is_unique:
        return StreamRefused(
            f"rustream's configuration has neither `incremental_tiebreaker_column` nor `incremental_column_is_unique` "
            f"for {table.full_name}: rows that share its watermark {watermark.value} may be missing",
            next_step="leave the stream out with `--stream`, so that its first run reads all rows",
            stream=stream,
        )
    return None


def stream_of(table: Table, config: Config) -> str:
    """The stream of a table: its name, as rustream's folder has it, or with its schema where two tables share it."""
    same = [each for each in config.tables or () if each.name == table.name]
    return table.name if len(same) == 1 else f"{table.schema_ or 'public'}_{table.name}"
