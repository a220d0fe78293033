"""What Alembic runs around the steps: inside the transaction of the connection that it is given."""

from alembic import context

from penstock.store.schema import REVISION_TABLE

given = context.config.attributes
context.configure(
    connection=given["connection"],
    version_table=REVISION_TABLE,
    version_table_schema=given["schema"],
)
context.run_migrations()
