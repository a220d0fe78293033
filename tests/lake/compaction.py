"""A compaction without Spark: every row into one file, numbers kept, as a `replace` snapshot that nobody signed."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles


class _Replace(_OverwriteFiles):
    """What Spark's rewrite_data_files commits."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        found = super()._summary(snapshot_properties or {})
        return Summary(operation=Operation.REPLACE, **found.additional_properties)


def compact(table: Table) -> None:
    """Rewrite what main shows. Raises CommitFailedException if someone else was first."""
    rows = table.scan().to_arrow()
    if not rows.num_rows:
        return
    transaction = table.transaction()
    producer: Any = _Replace(
        operation=Operation.OVERWRITE,
        transaction=transaction,
        io=table.io,
        commit_uuid=uuid.uuid4(),
        snapshot_properties={},
    )
    for task in table.scan().plan_files():
        producer.delete_data_file(task.file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyIceberg does not know a limit in bytes for row groups
        for file in list(_dataframe_to_data_files(table.metadata, rows.sort_by("_ingest_seq"), table.io)):
            producer.append_data_file(file)
    producer.commit()
    transaction.commit_transaction()
