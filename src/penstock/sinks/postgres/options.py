"""Options of a postgres sink and its streams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from penstock.core.sizes import DURATION_PATTERN, duration
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.options import ServerOptions
from penstock.ports import StreamInfo

#: the longest name that Postgres keeps
MAX_NAME_BYTES = 63

DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Duration = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(gt=0)] | DurationText),
    Field(gt=timedelta(0)),
]


class Options(ServerOptions):
    """A Postgres database that is written."""

    default_schema: str = Field(
        default="public", alias="schema", min_length=1, description="the schema of tables named without one"
    )
    own_schema: str = Field(
        default="penstock_sink",
        min_length=1,
        max_length=MAX_NAME_BYTES,
        pattern="^[^%]*$",
        description="the schema of ledger and quarantine; created if missing",
    )
    lock_timeout: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="seconds to wait for a lock on a table"
    )


class StreamOptions(BaseModel):
    """Options of one stream's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: str | None = Field(
        default=None,
        description="the table or `schema.table`, spelled exactly as in Postgres; default: the stream's name",
        examples=["orders"],
    )
    mode: Literal["append", "upsert", "replace", "state"] | None = Field(
        default=None,
        description="`append`: insert every row; `upsert`: one row per key; `replace`: each full refresh replaces all "
        "rows, as it does in any mode; `state`: apply ops of an outbox, one row per entity; default: with a key "
        "`upsert`, otherwise `append`",
        examples=["upsert"],
    )
    key: tuple[str, ...] | None = Field(
        default=None,
        description="columns that identify a row; default: the stream's primary key",
        examples=[["id"]],
    )
    newer_than: str | None = Field(
        default=None,
        description="write a row only if this column is newer than in the table; default: the stream's cursor if `key` "
        "lacks the primary key; `_changed_at` of a stream with changes of an API; otherwise the last row wins",
        examples=["updated_at"],
    )
    guard: tuple[str, ...] = Field(
        default=(),
        description="columns that must not change: a row with another value is refused; default: none",
        examples=[["tenant_id"]],
    )
    volatile: tuple[str, ...] = Field(
        default=(),
        description="columns to ignore: a row that differs only in these is not updated; default: none",
        examples=[["synced_at"]],
    )
    deletes: Literal["ignore", "soft", "hard"] = Field(
        default="hard",
        description="rows deleted at the source: `ignore` them, mark them (`soft`) or delete them (`hard`); without a "
        "key, `soft` inserts a marked row and `hard` is refused",
    )
    deleted_at: str | None = Field(
        default=None,
        description="with `deletes: soft`: column for the time of the delete; default: none",
        examples=["deleted_at"],
    )
    bad_rows: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="a row that the table rejects (a constraint, a value out of range): `fail` the stream, or store "
        "row and reason in the `quarantine` and continue",
    )
    create: bool = Field(
        default=True,
        description="create the table, add columns, and widen columns that were widened at the source",
    )
    replace_existing: bool = Field(
        default=False,
        description="allow the first full refresh, or the first slice with `mode: state`, to delete existing rows; "
        "otherwise it is refused",
    )
    accept_table: int | None = Field(
        default=None,
        gt=0,
        description="oid of a renamed or restored table: confirms that it holds every row delivered so far; default: "
        "another table stops the stream",
        examples=[16412],
    )
    early_for: Duration | None = Field(
        default=None,
        description="with `mode: state`: how long ops wait for an entity that does not exist yet, before they are "
        "dropped; default: for ever",
        examples=["30d"],
    )
    triggers: bool = Field(
        default=True,
        description="run the table's triggers for penstock's rows; `false` requires the role to own the table",
    )

    @field_validator("key", "guard", "volatile")
    @classmethod
    def _no_duplicates(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("expected no duplicate columns")
        return value

    @field_validator("key")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("expected at least one column")
        return value

    @field_validator("into")
    @classmethod
    def _is_table_name(cls, value: str | None) -> str | None:
        if value is not None:
            TableName.read(value, "public")
        return value


@dataclass(frozen=True)
class StreamConfig:
    """How one stream is written: what the source says about it, and what the pipeline file says."""

    info: StreamInfo
    options: StreamOptions
    table: TableName

    @property
    def is_state(self) -> bool:
        """Whether rows are documents of ops, and the table has one row for each entity."""
        return self.options.mode == "state"

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty: every row is inserted. Those of an entity are in the content."""
        if self.options.mode in ("append", "state"):
            return ()
        return self.options.key or self.info.primary_key

    @cached_property
    def newer_than(self) -> str | None:
        """The column that decides which of two rows with one key is newer; None: the row that arrives last."""
        return self.options.newer_than or self.info.newest_by(self.key)

    @property
    def deleted_at(self) -> str | None:
        """The column in which deletes are marked; None: they are not marked."""
        return self.options.deleted_at if self.options.deletes == "soft" else None

    @property
    def shown_key(self) -> tuple[str, ...]:
        """The columns that identify a row in messages."""
        return self.key or self.info.primary_key

    @property
    def required_columns(self) -> list[tuple[str, str]]:
        """The columns without which rows cannot be merged, each with the option that names it."""
        newer_than = (self.newer_than,) if self.newer_than else ()
        named = {"key": self.key, "guard": self.options.guard, "newer_than": newer_than}
        return [(option, name) for option, names in named.items() for name in names]
