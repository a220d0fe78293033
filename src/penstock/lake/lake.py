"""Where a lake is, and the settings with which PyIceberg and Spark reach its catalog."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from penstock.errors import ConnectionFailed, InputError
from penstock.lake.options import LakeOptions, check_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: how long a process waits for another one's write to a catalog file
CATALOG_LOCK_SECONDS = 60
#: environment variables with the address of an S3 server, as in Amazon's own tools
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
#: names of properties whose values are secrets
_SECRET = re.compile("secret|token|password|credential|access-key|authorization", re.IGNORECASE)


@dataclass(frozen=True)
class Lake:
    """The catalog, the warehouse and the namespace of a lake. Small and picklable; opens nothing by itself."""

    #: sqlite, jdbc, rest, glue or hive
    type: str
    #: the catalog's name
    name: str
    #: the catalog's address: a path for sqlite; it may hold a password
    uri: str = field(repr=False)
    #: where new tables' files go: file:///… or s3://…
    warehouse: str
    namespace: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, options: LakeOptions, *, folder: str, pipeline: str) -> Lake:
        """Make it from a pipeline file's options; relative paths start at the file's folder."""
        path = options.warehouse.removeprefix("file://")
        local = not options.warehouse.startswith("s3://")
        warehouse = f"file://{os.path.abspath(os.path.join(folder, os.path.expanduser(path)))}" if local else path
        uri = options.catalog.uri or ""
        if options.catalog.type == "sqlite":
            named = uri.removeprefix("sqlite:///")
            uri = os.path.abspath(
                os.path.join(folder, os.path.expanduser(named))
                if named
                else os.path.join(warehouse.removeprefix("file://"), "catalog.db")
            )
        for local_path in ([warehouse] if local else []) + ([uri] if options.catalog.type == "sqlite" else []):
            try:
                check_path(local_path)
            except ValueError as error:
                raise InputError(
                    f"the lake cannot be stored in {local_path}: {error}",
                    next_step="choose another folder for `warehouse` and `catalog.uri`, or move the pipeline file",
                ) from error
        return cls(
            type=options.catalog.type,
            name=options.catalog.name,
            uri=uri,
            warehouse=warehouse.rstrip("/"),
            namespace=options.namespace or namespace_of(pipeline),
            properties=dict(options.catalog.properties),
        )

    @property
    def folder(self) -> str | None:
        """The warehouse's local folder; None: it is not local."""
        return self.warehouse.removeprefix("file://") if self.warehouse.startswith("file://") else None

    @property
    def is_new(self) -> bool:
        """Whether its catalog does not exist yet: PyIceberg would create one to look into it."""
        return self.type == "sqlite" and not os.path.exists(self.uri)

    def identifier(self, table: str) -> tuple[str, str]:
        return (self.namespace, table)

    def spark_table(self, table: str) -> str:
        """A table's name in Spark SQL."""
        return f"`{self.name}`.`{self.namespace}`.`{table}`"

    # ------------------------------------------------------------ properties

    def given(self, *names: str) -> str | None:
        """The first of these properties that is set."""
        return next((value for name in names if (value := self.properties.get(name))), None)

    @property
    def catalog_warehouse(self) -> str:
        """The catalog's name for the warehouse, which may differ from the location of the files."""
        return self.given("warehouse") or self.warehouse

    @property
    def endpoint(self) -> str | None:
        """The S3 server's address; None: Amazon's own."""
        named = self.given("s3.endpoint") or next((v for e in _ENDPOINTS if (v := os.environ.get(e))), None)
        return named.rstrip("/") if named else None

    @property
    def region(self) -> str | None:
        """The bucket's region; None: Amazon's API is asked."""
        named = self.given("s3.region", "client.region")
        named = named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        # Other servers mostly have none, but a signature needs one.
        return named or ("us-east-1" if self.endpoint else None)

    def token_address(self) -> dict[str, str]:
        """Where a REST catalog exchanges a credential for a token; explicit, because both libraries warn otherwise."""
        if self.type != "rest" or "credential" not in self.properties or "oauth2-server-uri" in self.properties:
            return {}
        return {"oauth2-server-uri": f"{self.uri.rstrip('/')}/v1/oauth/tokens"}

    @property
    def vended(self) -> bool:
        """Whether the catalog hands out the credentials of the bucket."""
        return self.type == "rest" and not self.given("s3.access-key-id", "client.access-key-id")

    @property
    def shown(self) -> str:
        """The catalog's kind and address, for messages."""
        if self.type == "sqlite":
            return f"sqlite {self.uri}"
        try:
            at = urlsplit(self.uri)
            return (
                f"{self.type} {at.scheme}://{at.hostname}{f':{at.port}' if at.port else ''}"
                if at.hostname
                else self.type
            )
        except ValueError:
            return self.type

    def discreet(self, text: str) -> str:
        """Replace the secrets of this lake in a text."""
        secrets = [value for key, value in self.properties.items() if _SECRET.search(key)]
        secrets += [self.uri] if self.type == "jdbc" else []
        with contextlib.suppress(ValueError):
            secrets += [unquote(urlsplit(self.uri).password or "")]
        for secret in secrets:
            text = text.replace(secret, "***") if secret else text
        return text

    # ------------------------------------------------------------ PyIceberg

    def pyiceberg_properties(self) -> dict[str, str]:
        """The properties with which PyIceberg reaches this catalog and its files."""
        properties = {"warehouse": self.warehouse, **self.properties}
        if self.type == "sqlite":
            properties |= {"type": "sql", "uri": f"sqlite:///{self.uri}?timeout={CATALOG_LOCK_SECONDS}"}
        elif self.type == "jdbc":
            address = self.uri.partition("://")[2]
            properties |= {"type": "sql", "uri": f"postgresql+psycopg://{address}", "pool_pre_ping": "true"}
        else:
            properties |= {"type": self.type, **self.token_address()}
            if self.uri:
                properties |= {"uri": self.uri}
        if self.folder is not None:
            properties.setdefault("py-io-impl", "penstock.lake.parquet.DurableFileIO")
        else:
            # Set explicitly, so that PyIceberg does not ask Amazon about a bucket that is elsewhere.
            for key, value in (("s3.region", self.region), ("s3.endpoint", self.endpoint)):
                properties |= {key: value} if value and not self.vended else {}
        return properties

    def catalog(self) -> Catalog:
        """Open the catalog through PyIceberg; a SQL catalog's own tables are created at the first use."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError, RESTError
        from sqlalchemy.exc import SQLAlchemyError

        if self.type == "sqlite":
            os.makedirs(os.path.dirname(self.uri), exist_ok=True)
        try:
            if self.type in ("sqlite", "jdbc"):
                self._make_catalog_tables()
            return load_catalog(self.name, **self.pyiceberg_properties())
        except (NotInstalledError, ImportError) as error:
            extra = "rest-sigv4" if self.type == "rest" else self.type
            raise InputError(
                f"a {self.type} catalog needs a library that is not installed: {error}",
                next_step=f"pip install 'pyiceberg[{extra}]', then run again",
            ) from error
        except (SQLAlchemyError, RESTError, OSError) as error:
            raise self.unreachable(error) from error

    def _make_catalog_tables(self) -> None:
        """Create the catalog's own tables in a database; PyIceberg fails if another process creates them too."""
        from pyiceberg.catalog.sql import SqlCatalogBaseTable
        from sqlalchemy import create_engine
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool

        engine = create_engine(self.pyiceberg_properties()["uri"], poolclass=NullPool)
        for _ in SqlCatalogBaseTable.metadata.tables:
            with contextlib.suppress(SQLAlchemyError):
                return SqlCatalogBaseTable.metadata.create_all(engine)
        return SqlCatalogBaseTable.metadata.create_all(engine)

    def unreachable(self, error: Exception) -> ConnectionFailed:
        """The error for a catalog that does not answer, without secrets."""
        said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return ConnectionFailed(
            f"the catalog {self.name!r} ({self.shown}) cannot be reached: {self.discreet(said)}",
            next_step="check that the catalog runs and that its address and credentials are right, then run again",
        )

    # ------------------------------------------------------------ Spark

    def spark_settings(self) -> Mapping[str, str]:
        """The settings with which a session reaches this catalog under its own name."""
        at = f"spark.sql.catalog.{self.name}"
        settings = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            at: "org.apache.iceberg.spark.SparkCatalog",
            # Commits of other processes must be visible at once.
            f"{at}.cache-enabled": "false",
            f"{at}.warehouse": self.warehouse.removeprefix("file://"),
        }
        if self.type in ("sqlite", "jdbc"):
            settings |= {f"{at}.type": "jdbc", f"{at}.jdbc.schema-version": "V1"} | self._jdbc(at)
        else:
            settings |= {f"{at}.type": self.type} | {f"{at}.{k}": v for k, v in self.token_address().items()}
            if self.uri:
                settings |= {f"{at}.uri": self.uri}
        if self.folder is None:
            settings |= {f"{at}.{key}": value for key, value in self._java_s3().items()}
        # The user's properties come last: they may be meant for Java alone.
        return settings | {f"{at}.{key}": value for key, value in self.properties.items()}

    def _java_s3(self) -> dict[str, str]:
        """The bucket's properties under the names of Iceberg's Java library."""
        found = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
        if self.vended:
            return found
        if self.endpoint:
            virtual = (self.given("s3.force-virtual-addressing") or "").lower() == "true"
            found |= {"s3.endpoint": self.endpoint, "s3.path-style-access": "false" if virtual else "true"}
        if self.region:
            found |= {"client.region": self.region}
        else:
            found |= {"client.region": "us-east-1", "s3.cross-region-access-enabled": "true"}
        for word in ("access-key-id", "secret-access-key", "session-token"):
            if value := self.given(f"s3.{word}", f"client.{word}"):
                found |= {f"s3.{word}": value}
        return found

    def _jdbc(self, at: str) -> dict[str, str]:
        if self.type == "sqlite":
            return {f"{at}.uri": f"jdbc:sqlite:{self.uri}?busy_timeout={CATALOG_LOCK_SECONDS * 1000}"}
        parts = urlsplit(self.uri)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        query = f"?{parts.query}" if parts.query else ""
        found = {f"{at}.uri": f"jdbc:postgresql://{host}:{parts.port or 5432}{parts.path}{query}"}
        # Java does not know the environment variables of libpq.
        if user := unquote(parts.username or "") or os.environ.get("PGUSER"):
            found |= {f"{at}.jdbc.user": user}
        if password := unquote(parts.password or "") or os.environ.get("PGPASSWORD"):
            found |= {f"{at}.jdbc.password": password}
        return found

    def spark_packages(self) -> tuple[str, ...]:
        """Maven packages, by the names of `links.spark.jars`, that a session needs to reach it."""
        from penstock.links.spark import jars

        packages = [jars.ICEBERG]
        if self.type == "sqlite":
            packages.append(jars.SQLITE)
        elif self.type == "jdbc":
            packages.append(jars.POSTGRES)
        if self.folder is None or self.type == "glue":
            packages.append(jars.AWS)
        return tuple(packages)


def namespace_of(pipeline: str) -> str:
    """Make a namespace that all catalogs accept from a pipeline's name."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in pipeline)
    return plain if plain[:1].isalpha() else f"p_{plain}"
