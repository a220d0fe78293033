"""The first tables. The frozen copy of their declaration is the file beside this one: `schema` shows only HEAD."""

from pathlib import Path

from alembic import context, op

revision = "0006"
down_revision = None


def upgrade() -> None:
    schema = context.config.attributes["schema"]
    script = Path(__file__).with_suffix(".sql").read_text().replace("{schema}", f"{schema}." if schema else "")
    for statement in script.split(";\n"):
        if statement:
            op.execute(statement)
