"""Options of a lake, shared by sink and source: its warehouse and its catalog."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

#: valid names of catalogs, namespaces and tables: Spark and PyIceberg treat these the same
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("expected letters, digits and underscores, starting with a letter")
    return value


def _check_columns(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or len(set(value)) != len(value):
        raise ValueError("expected at least one column, and no duplicates")
    return value


#: the name of a catalog, a namespace or a table
PlainName = Annotated[str, AfterValidator(_check_name)]
#: a list of columns
Columns = Annotated[tuple[str, ...], AfterValidator(_check_columns)]


def check_path(value: str) -> str:
    """Return the path; ValueError if it contains a character with a meaning in URLs, which would redirect files."""
    if found := re.search(r"[?#%]", value):
        raise ValueError(f"a path cannot contain {found[0]!r}: the character has a special meaning in URLs")
    return value


def _check_postgres(uri: str) -> None:
    """ValueError if Python and Java would read the URL differently. The message omits the URL and its password."""
    if not uri.startswith(("postgresql://", "postgres://")):
        raise ValueError("a jdbc catalog is stored in Postgres: expected uri: postgresql://user:password@host/database")
    try:
        at = urlsplit(uri)
        fits = bool(at.hostname) and at.port != 0 and at.netloc.count("@") < 2 and len(at.path) > 1 and not at.fragment
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            "expected uri: postgresql://user:password@host/database, with a host name; percent-encode "
            "characters such as @ / ? # in the password"
        )


class CatalogOptions(BaseModel):
    """The catalog, which lists the tables and orders commits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite", "jdbc", "rest", "glue", "hive"] = Field(
        default="sqlite",
        description="`sqlite` (one machine only), `jdbc` (Postgres), `rest`, `glue` or `hive`; `hadoop` is refused "
        "because it loses commits",
    )
    name: PlainName = Field(default="lake", description="the catalog's name, in the catalog itself and in Spark")
    uri: str | None = Field(
        default=None,
        description="sqlite: a path, required if the warehouse is on S3; jdbc: `postgresql://…`; rest: `https://…`; "
        "hive: `thrift://…`; default: for sqlite, `catalog.db` in the warehouse",
        examples=["lake/catalog.db"],
        repr=False,
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="catalog properties under PyIceberg's names, such as `s3.endpoint`; default: none",
        examples=[{"s3.endpoint": "http://localhost:9000"}],
        repr=False,
    )

    @field_validator("type", mode="before")
    @classmethod
    def _refuse_hadoop(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lower() == "hadoop":
            raise ValueError(
                "the hadoop catalog is refused because it loses commits of concurrent writers (5 of 298 in our test); "
                "use sqlite on one machine, or jdbc, rest, glue or hive"
            )
        return value

    @model_validator(mode="after")
    def _check_uri(self) -> CatalogOptions:
        if self.type in ("jdbc", "rest", "hive") and not self.uri:
            raise ValueError(f"a {self.type} catalog requires uri")
        if self.type == "jdbc" and self.uri:
            _check_postgres(self.uri)
        if self.type == "rest" and self.uri and not self.uri.startswith(("http://", "https://")):
            raise ValueError("the uri of a rest catalog must start with http:// or https://")
        if self.type == "hive" and self.uri and not self.uri.startswith("thrift://"):
            raise ValueError("the uri of a hive catalog must start with thrift://")
        return self


class LakeOptions(BaseModel):
    """The lake that a pipeline reads or writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    warehouse: str = Field(
        default="lake",
        description="location of the files: a folder relative to the pipeline file, or `s3://bucket/path`",
    )
    catalog: CatalogOptions = Field(
        default_factory=CatalogOptions, description="the catalog of the tables; default: SQLite, in the warehouse"
    )
    namespace: PlainName | None = Field(
        default=None,
        description="the tables' namespace, of letters, digits and underscores; default: the pipeline's name",
        examples=["shop"],
    )

    @field_validator("warehouse")
    @classmethod
    def _check_warehouse(cls, value: str) -> str:
        scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*)://", value)
        nowhere = not value.strip() or (scheme and scheme[1] not in ("s3", "file"))
        if nowhere or (scheme and scheme[1] == "s3" and not urlsplit(value).netloc):
            raise ValueError("expected a folder or s3://bucket/path")
        check_path(value)
        return value

    @model_validator(mode="after")
    def _check_catalog(self) -> LakeOptions:
        if self.warehouse.startswith("s3://") and self.catalog.type == "sqlite" and not self.catalog.uri:
            raise ValueError(
                "a warehouse on S3 with a sqlite catalog requires catalog.uri: the path of the catalog file"
            )
        return self
