"""What became of rows, where the sink looks at each: of every change, and of a stream in all."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for table in ("streams", "history"):
        op.add_column(table, sa.Column("outcome", sa.Text))
