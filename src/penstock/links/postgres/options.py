"""What a user may say about a connection to Postgres, to read or to write."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

_URL = re.compile(r"postgres(?:ql)?://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:\[[^\]@]*\]|[^:@\[\]]*)(?::\d*)?")

_ENCODE = "write special characters of the user or password in percent form, for example @ as %40 and / as %2F"


def checked(value: SecretStr) -> SecretStr:
    """A URL that can be told apart into its pieces; ValueError otherwise."""
    match = _URL.fullmatch(value.get_secret_value())
    if match is None:
        raise ValueError("must begin with postgresql://, for example postgresql://user:password@host:5432/database")
    user, _, hosts = match["authority"].rpartition("@")
    # A password with a bare @ or / would become part of the host's name, which messages show.
    path = match["rest"].partition("?")[0]
    if "@" in user or "@" in path or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError(f"cannot be told apart into user, password, host and port; {_ENCODE}")
    return value


class Tls(BaseModel):
    """How the connection is encrypted, in libpq's terms."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        default=None,
        description="as libpq's `sslmode`; default: what `url` says, else libpq's own (`prefer`)",
        examples=["verify-full"],
    )
    root_certificate: str | None = Field(
        default=None,
        min_length=1,
        description="file of the certificates that the server's must descend from, or `system`; default: libpq's own",
        examples=["certs/root.crt"],
    )
    certificate: str | None = Field(
        default=None,
        min_length=1,
        description="file of our own certificate; default: libpq's own",
        examples=["certs/client.crt"],
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="file of our certificate's key; default: libpq's own",
        examples=["certs/client.key"],
    )


class ServerOptions(BaseModel):
    """A Postgres database."""

    # Inputs are hidden because the URL holds a password.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    url: SecretStr = Field(
        description="`postgresql://user:password@host:port/database`, with `?sslmode=…` and the like; special "
        "characters of user and password in percent form",
        examples=["${DATABASE_URL}"],
    )
    application_name: str = Field(default="penstock", min_length=1, description="the name in `pg_stat_activity`")
    connect_timeout: int = Field(default=10, ge=1, le=3600, description="seconds to wait for a connection")
    statement_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds after which the server ends one of our statements; default: the role's own",
        examples=[600],
    )
    tls: Tls = Field(default=Tls(), description="how connections are encrypted; default: as `url` says")

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: SecretStr) -> SecretStr:
        return checked(value)
