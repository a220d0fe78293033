"""A stream's table under another name, so that the stream can begin again in a new one."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import NoSuchTableError, RESTError
from sqlalchemy.exc import SQLAlchemyError

from penstock.errors import StreamRefused
from penstock.lake.place import Place
from penstock.lake.tables import catalog, load, standing_of


def archive(place: Place, table: str, pipeline: str, stream: str, label: str) -> Sequence[str]:
    """Rename the table, in one step of the catalog; says its new name and which readers stop."""
    loaded = load(place, table)
    if loaded is None:
        return []
    standing = standing_of(loaded)
    links = standing.links()
    others = sorted(f"{about[0]}/{about[1]}" for about in links if about != (pipeline, stream))
    if (pipeline, stream) not in links or others:
        why = f"{others[0]} lands in it too" if others else "this stream has never landed in it"
        raise StreamRefused(
            f"the table {place.namespace}.{table} cannot be renamed: {why}",
            next_step="name another table for this stream with `into`",
            pipeline=pipeline,
            stream=stream,
        )
    new = f"{table}_before_{label.lower()}"
    try:
        catalog(place).rename_table(place.identifier(table), place.identifier(new))
    except NoSuchTableError:
        return []  # someone has dropped or renamed it meanwhile
    except (SQLAlchemyError, RESTError, OSError) as error:
        raise place.unreachable(error) from error
    lines = [f"the table {place.namespace}.{table} is {place.namespace}.{new} now, with all its rows and snapshots"]
    for reader in standing.readers():
        lines.append(
            f"pipeline {reader.pipeline} reads that table as {reader.stream}: it stops at the new one; to let it read "
            f"that from its beginning, reset it: penstock state reset FILE --stream {reader.stream}, with its own file"
        )
    return lines
