"""The first tables: meta, leases, streams, contents, intents, history, runs, progress, failures, looks, days."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_meta"),
    )
    op.create_table(
        "leases",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("token", sa.Text),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("started", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("heartbeat", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", name="pk_leases"),
    )
    op.create_table(
        "streams",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("slice_id", sa.Text),
        sa.Column("mark", sa.Text),
        sa.Column("content", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("last_rows", sa.BigInteger, nullable=False),
        sa.Column("moved_at", sa.BigInteger),
        sa.Column("intent", sa.Text),
        sa.Column("reset_wanted", sa.Boolean, nullable=False),
        sa.Column("stopped", sa.Text),
        sa.PrimaryKeyConstraint("pipeline", "stream", name="pk_streams"),
        _of_pipeline("streams"),
    )
    op.create_table(
        "contents",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "stream", "hash", name="pk_contents"),
        _of_stream("contents"),
    )
    op.create_table(
        "intents",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("after", sa.Text),
        sa.Column("upto", sa.Text),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("spool", sa.Text, nullable=False),
        sa.Column("seal", sa.Text),
        sa.Column("intended_at", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "stream", name="pk_intents"),
        _of_stream("intents"),
    )
    op.create_table(
        "history",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("slice_id", sa.Text),
        sa.Column("mark", sa.Text),
        sa.Column("content", sa.Text),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("total_rows", sa.BigInteger, nullable=False),
        sa.Column("total_bytes", sa.BigInteger, nullable=False),
        sa.Column("total_outcome", sa.Text),
        sa.Column("run", sa.Text),
        sa.PrimaryKeyConstraint("pipeline", "stream", "version", name="pk_history"),
        _of_stream("history"),
    )
    op.create_table(
        "runs",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("has_more", sa.Boolean, nullable=False),
        sa.Column("continues", sa.Text),
        sa.Column("totals", sa.Text, nullable=False),
        sa.Column("verb", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "number", name="pk_runs"),
        sa.UniqueConstraint("pipeline", "id", name="uq_runs_pipeline_id"),
        _of_pipeline("runs"),
    )
    op.create_table(
        "progress",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "stream", name="pk_progress"),
        _of_pipeline("progress"),
    )
    op.create_index("ix_progress_pipeline_run", "progress", ["pipeline", "run"])
    op.create_table(
        "failures",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("safe", sa.Text, nullable=False),
        sa.Column("next_step", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "stream", name="pk_failures"),
    )
    op.create_table(
        "looks",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("streams", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "streams", name="pk_looks"),
    )
    op.create_table(
        "days",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("idle", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "day", name="pk_days"),
    )


def _of_pipeline(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["pipeline"], ["leases.pipeline"], name=f"fk_{table}_leases")


def _of_stream(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["pipeline", "stream"], ["streams.pipeline", "streams.stream"], name=f"fk_{table}_streams"
    )
