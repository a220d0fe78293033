"""What a user may say about the postgres sink and the tables it fills."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.links.postgres.literals import TableName
from penstock.links.postgres.options import ServerOptions


class Options(ServerOptions):
    """A Postgres database, and how it is written."""

    default_schema: str = Field(
        default="public", alias="schema", min_length=1, description="the schema of tables named without one"
    )
    own_schema: str = Field(
        default="penstock_sink",
        min_length=1,
        max_length=63,
        pattern="^[^%]*$",
        description="the schema of the ledger and of what is put aside; it is made if it is not there",
    )
    lock_timeout: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="seconds to wait for a table that another has locked"
    )


class StreamOptions(BaseModel):
    """What a user may say about one stream's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: str | None = Field(
        default=None,
        description="the table, or `schema.table`, spelt as in Postgres; default: the stream's name",
        examples=["orders"],
    )
    mode: Literal["append", "upsert", "replace"] | None = Field(
        default=None,
        description="`append`: every row is added; `upsert`: one row for each key; `replace`: each full refresh "
        "takes the place of all before it (a full refresh does so in any mode); default: by the stream's key, `append` "
        "if it has none",
        examples=["upsert"],
    )
    key: tuple[str, ...] | None = Field(
        default=None,
        description="the columns that identify a row, as a list; default: the stream's primary key",
        examples=[["id"]],
    )
    newer_than: str | None = Field(
        default=None,
        description="a row is taken only if it is newer, by this column, than what the table has; default: the "
        "stream's cursor if `key` does not contain the primary key, else the last one that comes is taken",
        examples=["updated_at"],
    )
    guard: tuple[str, ...] = Field(
        default=(),
        description="columns, as a list: a row in which one differs from what the table has is refused; default: none",
        examples=[["tenant_id"]],
    )
    volatile: tuple[str, ...] = Field(
        default=(),
        description="columns, as a list: a row that differs only in these is not an update; default: none",
        examples=[["synced_at"]],
    )
    deletes: Literal["ignore", "soft", "hard"] = Field(
        default="hard",
        description="rows that the source says are deleted: `ignore` them, mark them (`soft`), or delete them "
        "(`hard`); without a key `soft` adds a row that is marked, and `hard` is refused",
    )
    deleted_at: str | None = Field(
        default=None,
        description="with `deletes: soft`, the column that gets the time of the delete; default: none",
        examples=["deleted_at"],
    )
    bad_rows: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="a row that the table will not take (a constraint, a value that does not fit): the stream fails "
        "(`fail`), or the row is put aside with the reason and the others go on (`quarantine`)",
    )
    create: bool = Field(
        default=True,
        description="make the table, add columns to it, and widen those that became wider at the source",
    )
    replace_existing: bool = Field(
        default=False,
        description="the first full refresh may delete rows that the table already holds; without it, such a refresh "
        "is refused",
    )
    accept_table: int | None = Field(
        default=None,
        gt=0,
        description="the oid of a table that holds everything that was delivered so far (it was renamed, or restored "
        "from a backup); default: a stream stops if its table is not the one that its rows went into",
        examples=[16412],
    )
    triggers: bool = Field(
        default=True,
        description="whether the table's own triggers run for rows that penstock writes; `false` needs its owner",
    )

    @field_validator("key", "guard", "volatile")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("expected each column once")
        return value

    @field_validator("key")
    @classmethod
    def _some(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("expected at least one column")
        return value

    @field_validator("into")
    @classmethod
    def _is_a_table(cls, value: str | None) -> str | None:
        if value is not None:
            TableName.read(value, "public")
        return value
