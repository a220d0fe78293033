"""A migration that penstock does not have yet: what becomes of a store of today when there is one.

The tests of migrating would have nothing to migrate without it, as long as there is one revision.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.store import migrations, upgrade
from penstock.store.schema import HEAD, REVISIONS

LATER = "9000"
STEP = f"""
import sqlalchemy as sa
from alembic import op

revision = "{LATER}"
down_revision = "{HEAD}"


def upgrade() -> None:
    op.add_column("streams", sa.Column("later", sa.Text))
"""


def write_later(folder: Path) -> str:
    """The migrations with one more; where they are."""
    scripts = folder / "migrations"
    shutil.copytree(Path(migrations.__path__[0]), scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / f"{LATER}_later.py").write_text(STEP)
    return str(scripts)


def use_later(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this process take stores of today for older ones."""
    monkeypatch.setattr(upgrade, "SCRIPTS", write_later(folder))
    monkeypatch.setattr(upgrade, "REVISIONS", (*REVISIONS, LATER))
    monkeypatch.setattr(upgrade, "HEAD", LATER)


def preamble(scripts: str) -> str:
    """The same, as the first lines of another process's program."""
    return (
        "from penstock.store import upgrade\n"
        f"upgrade.SCRIPTS, upgrade.REVISIONS, upgrade.HEAD = {scripts!r}, {(*REVISIONS, LATER)!r}, {LATER!r}\n"
    )
