"""What a user may say about a postgres source and its streams."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from penstock.links.postgres.literals import TableName

_URL = re.compile(r"postgres(?:ql)?://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:\[[^\]@]*\]|[^:@\[\]]*)(?::\d*)?")

_ENCODE = "write special characters of the user or password in percent form, for example @ as %40 and / as %2F"


class Options(BaseModel):
    """A Postgres database."""

    # Inputs are hidden because the URL holds a password.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    url: SecretStr = Field(description="postgresql://user:password@host:port/database, with ?sslmode=… and the like")
    default_schema: str = Field(
        default="public",
        alias="schema",
        min_length=1,
        description="the schema of tables named without one; discovered if asked",
    )
    discover: bool | None = Field(
        default=None,
        description="sync every table of the schema that has a primary key; default: if no stream is listed",
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description="tables that discovery leaves out: names or patterns such as audit_* (also schema.table)",
    )
    application_name: str = Field(default="penstock", min_length=1, description="the name shown in pg_stat_activity")
    connect_timeout: int = Field(default=10, ge=1, le=3600, description="seconds to wait for a connection")
    statement_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds after which the server ends one of our statements; default: the role's own",
    )

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: SecretStr) -> SecretStr:
        match = _URL.fullmatch(value.get_secret_value())
        if match is None:
            raise ValueError("must begin with postgresql://, for example postgresql://user:password@host:5432/database")
        user, _, hosts = match["authority"].rpartition("@")
        # A password with a bare @ or / would become part of the host's name, which messages show.
        path = match["rest"].partition("?")[0]
        if "@" in user or "@" in path or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
            raise ValueError(f"cannot be told apart into user, password, host and port; {_ENCODE}")
        return value


class StreamOptions(BaseModel):
    """What a user may say about one table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str | None = Field(
        default=None, description="the table, or schema.table, spelt as in Postgres; default: the stream"
    )
    cursor: str | None = Field(
        default=None,
        description="a column that grows with every change, such as updated_at; without one: a full refresh",
    )
    tiebreaker: tuple[str, ...] = Field(
        default=(),
        description="the column or columns that tell rows of one cursor value apart, as the primary key does",
    )
    unique: bool = Field(
        default=False, description="the cursor alone is unique and strictly increasing: no tiebreaker needed"
    )
    columns: tuple[str, ...] | None = Field(default=None, min_length=1, description="the columns to read; default: all")
    nulls: Literal["fail", "skip"] = Field(
        default="fail", description="rows whose cursor is NULL: refuse the stream, or skip them"
    )
    index: Literal["required", "optional"] = Field(
        default="required",
        description="whether an index on cursor and tiebreaker must exist; else every slice sorts the table",
    )
    row_security: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="if row-level security hides rows from us: refuse the stream, or sync what we see",
    )
    accept_drop: bool = Field(
        default=False,
        description="let a full refresh go through although the table has far fewer rows than last time",
    )

    @field_validator("tiebreaker", mode="before")
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
