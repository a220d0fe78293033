"""A source and a sink as config sees them, so that its tests do not depend on real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from penstock import config
from penstock.config import File
from penstock.config.load import Registry


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PostgresOptions(Frozen):
    url: SecretStr
    schema_: str = Field("public", alias="schema")
    timeout: int = Field(10, ge=1)
    verify: bool = True
    exclude: tuple[str, ...] = ()

    @field_validator("url")
    @classmethod
    def _url(cls, url: SecretStr) -> SecretStr:
        # Careless on purpose: config must not let the value through.
        if not url.get_secret_value().startswith("postgresql://"):
            raise ValueError(f"{url.get_secret_value()} does not begin with postgresql://")
        return url

    @model_validator(mode="after")
    def _whole(self) -> PostgresOptions:
        if self.schema_ in self.exclude:
            raise ValueError(f"the schema {self.schema_} is excluded; url is {self.url.get_secret_value()}")
        return self


class PostgresStream(Frozen):
    cursor: str | None = None
    tiebreaker: tuple[str, ...] = ()
    unique: bool = False
    lag: float | None = None

    @field_validator("tiebreaker", mode="before", json_schema_input_type=str | tuple[str, ...])
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class PartitionBy(Frozen):
    column: str
    by: Literal["date", "month", "year"]


class FilesOptions(Frozen):
    directory: str
    format: Literal["parquet", "csv", "ndjson"] = "parquet"


class FilesStream(Frozen):
    partition_by: PartitionBy | Literal["none"] | None = None


class Fake:
    """A registry."""

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self._modules = modules

    def types(self) -> list[str]:
        return sorted(self._modules)

    def load(self, type_: str) -> Any:
        return self._modules[type_]


SOURCES: Registry = Fake(
    {
        "postgres": SimpleNamespace(Options=PostgresOptions, StreamOptions=PostgresStream),
        "rest": SimpleNamespace(Options=FilesOptions, StreamOptions=PostgresStream),
    }
)
SINKS: Registry = Fake({"files": SimpleNamespace(Options=FilesOptions, StreamOptions=FilesStream)})

URL = "postgresql://ann:hunter2@db/shop"


def load(text: str | bytes, folder: Path, sets: Sequence[str] = (), **environment: str) -> File:
    """Load a text as `shop.yaml`."""
    path = folder / "shop.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    variables = {"DATABASE_URL": URL} | environment
    return config.load(path, environment=variables, sources=SOURCES, sinks=SINKS, sets=sets)
