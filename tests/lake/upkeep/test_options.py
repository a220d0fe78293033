"""What a user may say about upkeep."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from penstock.lake.upkeep.options import MIB, UpkeepOptions
from penstock.sinks.lake import Options


def test_defaults() -> None:
    options = UpkeepOptions()
    assert (options.target_file_size, options.min_input_files, options.retention) == (256 * MIB, 5, None)
    assert options.snapshots.keep_for == timedelta(days=5)
    assert options.tombstones.age == timedelta(days=7)


def test_sizes_and_times_as_people_write_them() -> None:
    options = Options(
        target_file_size="64MiB",  # type: ignore[arg-type]  # as a pipeline file has it
        upkeep=UpkeepOptions.model_validate(
            {"target_file_size": "1GiB", "retention": {"age": "90d", "size": "1.5TB"}, "orphans": {"older_than": "36h"}}
        ),
    )
    assert options.target_file_size == 64 * MIB
    assert options.upkeep.target_file_size == 1024 * MIB
    assert options.upkeep.retention is not None
    assert options.upkeep.retention.age == timedelta(days=90)
    assert options.upkeep.retention.size == 1_500_000_000_000
    assert options.upkeep.orphans.older_than == timedelta(hours=36)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"target_file_size": "10KiB"}, "greater than or equal to 1048576"),
        ({"target_file_size": "big"}, "expected a size"),
        ({"min_input_files": 1}, "greater than or equal to 2"),
        ({"retention": {}}, "expected age, size or both"),
        ({"retention": {"age": "soon"}}, "expected a time"),
        ({"snapshots": {"keep_at_least": 0}}, "greater than or equal to 1"),
        ({"snapshot": {}}, "Extra inputs"),
    ],
)
def test_mistakes(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        UpkeepOptions.model_validate(keys)
