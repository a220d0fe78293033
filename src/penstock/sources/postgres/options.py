"""Options of a postgres source and its streams."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from penstock.links.postgres.literals import TableName
from penstock.links.postgres.options import ServerOptions, check_url


class Horizon(BaseModel):
    """How far a stream is read while other transactions write."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: rows that an open transaction could still precede are not read yet; `off`: every visible "
        "row is read, and a row that commits late is lost",
    )
    lag: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="minimum age in seconds of a row before it is read, where the horizon is not proven",
        examples=[60],
    )
    margin: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds for which a new transaction may be missing in pg_stat_activity; a run that finds newer "
        "rows while others are connected waits once for this long",
    )
    warn_after: float | None = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which a transaction that holds rows back is a warning; null: never",
    )
    fail_after: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which a transaction that holds rows back fails the stream; default: never",
        examples=[3600],
    )


class Options(ServerOptions):
    """A Postgres database that is read."""

    default_schema: str = Field(
        default="public",
        alias="schema",
        min_length=1,
        description="the schema of tables named without one, and of discovery",
    )
    discover: bool | None = Field(
        default=None,
        description="sync every table with a primary key; default: true if no stream is listed",
        examples=[True],
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description="tables that discovery skips, such as `audit_*` or `sales.tmp_*`; default: none",
        examples=[["audit_*"]],
    )
    replica: SecretStr | None = Field(
        default=None,
        description="URL of a replica to read rows from, once it has replayed the planned position; default: "
        "the server of `url`",
        examples=["${REPLICA_URL}"],
    )
    replica_wait: float = Field(
        default=60.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds to wait for a server to replay the planned position",
    )
    connections: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="maximum number of connections that read rows at once; default: one per Spark worker",
        examples=[2],
    )
    timeline: int | None = Field(
        default=None,
        ge=1,
        description="confirms, after a failover, that no committed data was lost on this timeline; default: a new "
        "timeline stops the streams",
        examples=[2],
    )
    horizon: Horizon = Field(
        default=Horizon(), description="how far streams are read while other transactions write; default: see below"
    )

    @field_validator("replica")
    @classmethod
    def _check_replica(cls, value: SecretStr | None) -> SecretStr | None:
        return value and check_url(value)


class StreamOptions(BaseModel):
    """Options of one table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str | None = Field(
        default=None,
        description="the table or `schema.table`, spelled exactly as in Postgres; default: the stream's name",
        examples=["orders"],
    )
    cursor: str | None = Field(
        default=None,
        description="a column that increases with every change; default: none, a full refresh",
        examples=["updated_at"],
    )
    tiebreaker: tuple[str, ...] = Field(
        default=(),
        description="column or columns that distinguish rows with the same cursor value; default: none",
        examples=["id"],
    )
    unique: bool = Field(
        default=False, description="the cursor is unique and strictly increasing: no tiebreaker is needed"
    )
    columns: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="columns to read; default: all",
        examples=[["id", "updated_at"]],
    )
    nulls: Literal["fail", "skip"] = Field(
        default="fail", description="rows whose cursor is NULL: `fail` refuses the stream, `skip` omits the rows"
    )
    index: Literal["required", "optional"] = Field(
        default="required",
        description="index on cursor and tiebreaker: `required`, or `optional` (without one, every slice sorts the "
        "table)",
    )
    row_security: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="if row-level security hides rows from the role: `refuse` the stream, or `accept` the visible rows",
    )
    hidden_partitions: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="if a partition with rows below the mark is attached that the role may not read directly: `refuse` "
        "the stream, or `skip` these rows with a warning",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="SQL condition of the rows to read; default: all rows",
        examples=["status <> 'draft'"],
    )
    first_load: Literal["auto", "keys", "blocks", "cursor"] = Field(
        default="auto",
        description="how existing rows are read: `keys`: in parallel by primary key; `blocks`: by table blocks "
        "(requires a trigger that increases the cursor on every update); `cursor`: in cursor order; `auto`: `keys` for "
        "large tables where possible",
    )
    arrays: Literal["list", "text"] = Field(
        default="list",
        description="`list`: one-dimensional arrays become lists; `text`: every array becomes text in Postgres' "
        "notation",
    )
    unfit: Literal["fail", "null", "text"] = Field(
        default="fail",
        description="values that Arrow cannot represent (infinity, NaN in a numeric, 24:00, years before 1 or after "
        "9999, multidimensional arrays): `fail` the stream, deliver `null`, or deliver columns of these types as "
        "Postgres `text`",
    )
    horizon: Horizon | None = Field(
        default=None, description="like `horizon` of the source, for this stream only; default: the source's"
    )
    continues: str | None = Field(
        default=None,
        pattern=r"^\d+/\d+/\d+$",
        description="confirms, after the table was replaced or its sequence restarted, that no row below the mark is "
        "new; the error prints the value; default: the stream stops",
        examples=["16412/16412/16420"],
    )
    accept_drop: bool = Field(
        default=False,
        description="accept a full refresh with less than half the rows of the previous one, and deletes of more than "
        "half the rows that `find_deletes` has compared",
    )
    find_deletes: Literal["never", "compare"] = Field(
        default="never",
        description="rows that are deleted at the source: `never`: they stay in the sink; `compare`: every run "
        "compares keys with the sink, and deletes rows there that the table no longer has",
    )
    find_deletes_rows: int | None = Field(
        default=None,
        ge=1,
        description="with `find_deletes: compare`: rows of the sink whose keys one run compares; the next run goes on "
        "from there, and begins again after the last key; default: all rows in every run",
        examples=[1_000_000],
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
