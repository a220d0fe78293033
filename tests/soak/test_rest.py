"""A short seed of the rest source's fault run."""

from pathlib import Path

from tests.soak.rest import soak


def test_a_short_seed(tmp_path: Path) -> None:
    result = soak(16, "lake", 600, 3, tmp_path, "")
    assert result.wrong == []
    assert result.objects >= 8 * 600
