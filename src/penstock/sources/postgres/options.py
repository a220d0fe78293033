"""What a user may say about a postgres source and its streams."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from penstock.links.postgres.literals import TableName
from penstock.links.postgres.options import ServerOptions, checked


class Horizon(BaseModel):
    """How far a stream may be read while others still write."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: nothing is read that an open transaction could still come before; `off`: everything that "
        "is visible is read, and a row that commits late is lost",
    )
    lag: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds that a place must be old before it is read, where nothing can be proven (the "
        "application's clock, ids fetched ahead, a server that will not tell)",
        examples=[60],
    )
    margin: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds within which a transaction shows itself: it takes its time a moment before; a run that "
        "finds fresher rows, and others connected, waits so long, once, and looks again",
    )
    warn_after: float | None = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="warn when a transaction has held rows back for so many seconds; null: never",
    )
    fail_after: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="fail the stream when a transaction has held rows back for so many seconds; default: never",
        examples=[3600],
    )


class Options(ServerOptions):
    """A Postgres database, and what is read there."""

    default_schema: str = Field(
        default="public",
        alias="schema",
        min_length=1,
        description="the schema of tables named without one, and the one that is discovered",
    )
    discover: bool | None = Field(
        default=None,
        description="sync every table of the schema that has a primary key; default: true if no stream is listed",
        examples=[True],
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description="tables that discovery leaves out: names or patterns (`audit_*`), also as `schema.table`; "
        "default: none",
        examples=[["audit_*"]],
    )
    replica: SecretStr | None = Field(
        default=None,
        description="rows are read from this replica, once it has what was planned at `url`; default: from `url`",
        examples=["${REPLICA_URL}"],
    )
    replica_wait: float = Field(
        default=60.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds to wait for a server that has not yet replayed what was planned",
    )
    connections: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="most connections that read rows at the same time; default: one for each of Spark's workers",
        examples=[2],
    )
    timeline: int | None = Field(
        default=None,
        ge=1,
        description="the operator's word, after a failover, that this timeline of the server continues what was read; "
        "default: a new timeline stops the streams",
        examples=[2],
    )
    horizon: Horizon = Field(
        default=Horizon(), description="how far streams may be read while others still write; default: see below"
    )

    @field_validator("replica")
    @classmethod
    def _is_one_too(cls, value: SecretStr | None) -> SecretStr | None:
        return value and checked(value)


class StreamOptions(BaseModel):
    """What a user may say about one table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str | None = Field(
        default=None,
        description="the table, or `schema.table`, spelt as in Postgres; default: the stream's name",
        examples=["orders"],
    )
    cursor: str | None = Field(
        default=None,
        description="a column that grows with every change; default: none: a full refresh",
        examples=["updated_at"],
    )
    tiebreaker: tuple[str, ...] = Field(
        default=(),
        description="the column, or list of columns, that tells rows of one cursor value apart; default: none",
        examples=["id"],
    )
    unique: bool = Field(
        default=False, description="the cursor alone is unique and strictly growing: no tiebreaker needed"
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the columns to read, as a list; default: all",
        examples=[["id", "updated_at"]],
    )
    nulls: Literal["fail", "skip"] = Field(
        default="fail", description="rows whose cursor is NULL: `fail` refuses the stream, `skip` leaves them out"
    )
    index: Literal["required", "optional"] = Field(
        default="required",
        description="an index on cursor and tiebreaker: `required`, or `optional` (every slice then sorts the table)",
    )
    row_security: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="if row-level security hides rows from us: `refuse` the stream, or `accept` what we see",
    )
    hidden_partitions: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="if a partition is attached later with rows from below the mark, and the user may not read it by "
        "its own name: `refuse` the stream, or `skip` these rows and warn",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="a condition in SQL; only rows for which it is true are read; default: all rows",
        examples=["status <> 'draft'"],
    )
    first_load: Literal["auto", "keys", "blocks", "cursor"] = Field(
        default="auto",
        description="how what exists is read first: `keys`: in parallel by ranges of the primary key; `blocks`: by "
        "blocks of the table (only where a trigger bumps the cursor with every update); `cursor`: along the cursor; "
        "`auto`: `keys` where the table is large and it can be",
    )
    arrays: Literal["list", "text"] = Field(
        default="list",
        description="arrays of one dimension as lists, or every array as Postgres writes it",
    )
    unfit: Literal["fail", "null", "text"] = Field(
        default="fail",
        description="values that Arrow cannot hold (infinity, NaN in a numeric, 24:00, years before 1 or after 9999, "
        "arrays of several dimensions): `fail` the stream, deliver `null`, or send columns of such types as Postgres' "
        "`text`",
    )
    horizon: Horizon | None = Field(
        default=None, description="as `horizon` of the source, for this stream alone; default: the source's"
    )
    continues: str | None = Field(
        default=None,
        pattern=r"^\d+/\d+/\d+$",
        description="confirms, after the table was replaced or its sequence restarted, that no row below the mark is "
        "new; the message of the stop names the value; default: such a change stops the stream",
        examples=["16412/16412/16420"],
    )
    accept_drop: bool = Field(
        default=False,
        description="let a full refresh through although it has less than half the rows of the one before",
    )

    @field_validator("tiebreaker", mode="before", json_schema_input_type=str | tuple[str, ...])
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value

    @field_validator("tiebreaker", "columns")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = [name for index, name in enumerate(value or ()) if name in (value or ())[:index]]
        if twice:
            raise ValueError(f"names {twice[0]} twice")
        return value

    @field_validator("table")
    @classmethod
    def _is_a_table(cls, value: str | None) -> str | None:
        if value is not None:
            TableName.read(value, "public")
        return value
