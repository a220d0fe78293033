"""What every room's tests may ask for: a real PostgreSQL server, an empty database on it, and a real S3 server."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from penstock.testing.postgres import PostgresServer
from penstock.testing.s3 import S3Server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole session; roles and settings that a test changes outlive the test."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database, which is dropped afterwards whoever is still connected."""
    url = postgres_server.database()
    yield url
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for the whole session; a test makes buckets of its own."""
    with S3Server() as server:
        yield server
