"""One short seed of the lake's fault run; `script/soak lake` runs it in full."""

from __future__ import annotations

from pathlib import Path

from tests.soak.lake import soak


def test_every_row_arrives_once_and_in_order_while_every_process_is_killed(tmp_path: Path) -> None:
    result = soak(seed=1, seconds=10.0, folder=tmp_path)

    assert result["faults"] == []
    assert result["rows"] > 0
    assert result["changes"] > 0
    assert result["kills"] > 0
    assert result["lake.landed"] > 0
