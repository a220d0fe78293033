"""Where the search for deleted rows goes on in the next run."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("streams", sa.Column("compared", sa.Text))
