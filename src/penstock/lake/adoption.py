"""Adopts a table that penstock did not create: adds the column of the order, and a head."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.types import LongType

from penstock.core.documents import canonical
from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import UNNUMBERED
from penstock.lake.tables import extract_state, format_inspected, load_table, retry_commit, translate_commit_errors


def adopt(lake: Lake, table: str, *, mode: str = "append", key: Sequence[str] = ()) -> list[str]:
    """Give the table its order; existing rows get their numbers by `foreign.stamp`. Idempotent."""

    def attempt() -> list[str]:
        loaded = load_table(lake, table)
        if loaded is None or extract_state(loaded).ours:
            return []
        if loaded.metadata.format_version != 2:
            raise StreamRefused(
                f"{lake.namespace}.{table} is an Iceberg table of format version {loaded.metadata.format_version}; "
                "penstock can adopt only version 2",
                next_step=f"copy it into a new table, or raise it: alter table {table} set tblproperties "
                "('format-version' = '2')",
            )
        properties = {names.HEAD: "0", names.MODE: mode, names.ADOPTED: "true", UNNUMBERED: "true"}
        if current := loaded.metadata.current_snapshot():
            # No row has a number, and every row gets one, whichever snapshot brought it.
            properties[names.INSPECTED] = format_inspected(current.snapshot_id, current.sequence_number or 0)
        if mode == "merge":
            properties |= {names.KEY: canonical(list(key)), names.MERGE_MODE: names.ON_READ}
        with translate_commit_errors():
            transaction = loaded.transaction()
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                if names.SEQ in loaded.schema().column_names:
                    # Numbers of another table: under a new field id they are not seen again.
                    update.delete_column(names.SEQ)
                update.add_column((names.SEQ,), LongType(), required=False)
            transaction.set_properties(properties)
            transaction.commit_transaction()
        return [f"adopted {lake.namespace}.{table}: added the column {names.SEQ}"]

    def give_up(why: str) -> StreamRefused:
        return StreamRefused(f"cannot adopt {lake.namespace}.{table}: {why}", next_step="run again")

    return retry_commit(attempt, give_up)
