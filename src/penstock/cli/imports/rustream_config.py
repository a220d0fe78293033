"""rustream's configuration, as far as it says what a pipeline file says."""

from __future__ import annotations

import os
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from penstock.errors import ConfigError


class _Section(BaseModel):
    # rustream itself passes over keys that it does not know.
    model_config = ConfigDict(extra="allow", frozen=True)


class Postgres(_Section):
    host: str
    port: int = 5432
    database: str
    user: str
    password: str | None = None


class Output(_Section):
    type: Literal["local", "s3"]
    path: str = ""
    bucket: str = ""
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None


class Table(_Section):
    name: str
    schema_: str | None = None
    columns: list[str] | None = None
    incremental_column: str | None = None
    incremental_tiebreaker_column: str | None = None
    incremental_column_is_unique: bool = False
    partition_by: Literal["date", "month", "year"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, given: Any) -> Any:
        # Pydantic's models have a method of this name.
        return {("schema_" if key == "schema" else key): value for key, value in given.items()}

    @property
    def full_name(self) -> str:
        """Under this name rustream keeps its watermark."""
        return f"{self.schema_}.{self.name}" if self.schema_ else self.name

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that it is read along; (): it is read whole."""
        columns = (self.incremental_column, self.incremental_tiebreaker_column)
        return tuple(column for column in columns if column) if self.incremental_column else ()


class Config(_Section):
    """A configuration file."""

    postgres: Postgres
    output: Output | None = None
    tables: list[Table] | None = None
    exclude: list[str] = []
    schema_: str = "public"
    batch_size: int | None = None
    state_dir: str | None = None
    format: Literal["parquet", "iceberg"] = "parquet"
    warehouse: str | None = None
    catalog: dict[str, Any] | None = None
    ingest: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, given: Any) -> Any:
        return {("schema_" if key == "schema" else key): value for key, value in given.items()}

    @property
    def unknown_keys(self) -> list[str]:
        """Keys that rustream passes over, such as a misspelt one."""
        sections = [("", self), ("postgres.", self.postgres), ("output.", self.output)]
        sections += [(f"tables.{each.name}.", each) for each in self.tables or ()]
        return [f"{place}{key}" for place, section in sections if section for key in section.model_extra or ()]


def read_config(path: str) -> Config:
    """Read the file; ConfigError names what is wrong in it."""

    def refuse(why: str, next_step: str) -> ConfigError:
        return ConfigError(f"{path} cannot be taken over: {why}", safe="Nothing was written.", next_step=next_step)

    try:
        with open(path, encoding="utf-8") as file:
            given = yaml.safe_load(file)
    except OSError as error:
        raise refuse(error.strerror or str(error), "name rustream's configuration file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise refuse(f"it is not YAML: {' '.join(str(error).split())}", "correct it, as for rustream") from None
    if not isinstance(given, dict):
        raise refuse("it is not a configuration of rustream", "name the file that `rustream sync --config` reads")
    try:
        config = Config.model_validate(given)
    except (ValidationError, AttributeError, TypeError) as error:
        found = error.errors(include_input=False, include_url=False) if isinstance(error, ValidationError) else []
        places = [(".".join(map(str, each["loc"])).replace("schema_", "schema"), each["msg"]) for each in found]
        why = "; ".join(f"{place}: {message}" for place, message in places)
        raise refuse(why or "it is not a configuration of rustream", "correct it, as for rustream") from None
    if config.output is None:
        raise refuse(
            "it has no `output`: it only says how files are read into Postgres",
            "write a pipeline file for that by hand; see the docs of the source `files` where this version has it",
        )
    return config


def folder_of(config: Config, below: str) -> str:
    """The local folder of the output, as a pipeline file in another folder names it."""
    assert config.output is not None
    path = os.path.abspath(config.output.path)
    near = os.path.relpath(path, os.path.abspath(below))
    return path if near.startswith("..") else near
