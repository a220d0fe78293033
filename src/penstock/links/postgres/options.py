"""Options of a connection to Postgres."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

_URL = re.compile(r"postgres(?:ql)?://(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?:\[[^\]@]*\]|[^:@\[\]]*)(?::\d*)?")

_ENCODE = "percent-encode special characters in the user name and password, for example @ as %40 and / as %2F"


def check_url(value: SecretStr) -> SecretStr:
    """Return the URL; ValueError if it cannot be split into its parts."""
    match = _URL.fullmatch(value.get_secret_value())
    if match is None:
        raise ValueError("must start with postgresql://, for example postgresql://user:password@host:5432/database")
    user, _, hosts = match["authority"].rpartition("@")
    # An unencoded @ or / in a password would become part of the host name, which messages show.
    path = match["rest"].partition("?")[0]
    if "@" in user or "@" in path or not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError(f"cannot be split into user, password, host and port; {_ENCODE}")
    return value


class Tls(BaseModel):
    """TLS settings of the connection, as in libpq."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        default=None,
        description="libpq's `sslmode`; default: the value in `url`, or libpq's default (`prefer`)",
        examples=["verify-full"],
    )
    root_certificate: str | None = Field(
        default=None,
        min_length=1,
        description="file with the trusted root certificates, or `system`; default: libpq's default",
        examples=["certs/root.crt"],
    )
    certificate: str | None = Field(
        default=None,
        min_length=1,
        description="file with the client certificate; default: libpq's default",
        examples=["certs/client.crt"],
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        description="file with the key of the client certificate; default: libpq's default",
        examples=["certs/client.key"],
    )


class ServerOptions(BaseModel):
    """A Postgres database."""

    # Inputs are hidden because the URL contains a password.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    url: SecretStr = Field(
        description="`postgresql://user:password@host:port/database`, with parameters such as `?sslmode=…`; "
        "percent-encode special characters in user and password",
        examples=["${DATABASE_URL}"],
    )
    application_name: str = Field(
        default="penstock", min_length=1, description="the application name in `pg_stat_activity`"
    )
    connect_timeout: int = Field(default=10, ge=1, le=3600, description="seconds to wait for a connection")
    statement_timeout: float | None = Field(
        default=None,
        gt=0,
        description="seconds after which the server cancels a statement; default: the role's setting",
        examples=[600],
    )
    tls: Tls = Field(default=Tls(), description="TLS settings; default: those in `url`")

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: SecretStr) -> SecretStr:
        return check_url(value)
