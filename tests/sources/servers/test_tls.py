"""Encrypted connections: both drivers do what `tls` and the URL ask for, and every refusal has its next step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg import sql
from tests.harness.postgres import PASSWORD, PostgresServer, unprivileged_user
from tests.sources import tables
from tests.sources.servers.certificates import Authority
from tests.sources.servers.pipelines import ORDERS, arrive
from tests.sources.servers.slices import ids, planned
from tests.sources.tables import execute

from penstock.errors import ConnectionFailed, InputError
from penstock.links.postgres import arrow
from penstock.links.postgres.failures import connect_error
from penstock.links.postgres.targets import connection_target
from penstock.ports import Context, NoProbe
from penstock.sources.postgres import Options, PostgresSource, StreamOptions, build

#: the server's certificate is for this name
HOST = "db.test"
RULES = """\
hostssl all certified 127.0.0.1/32 cert
host all all 127.0.0.1/32 md5
local all all trust
"""


@dataclass(frozen=True)
class Site:
    server: PostgresServer
    #: where the pipeline file would be, with all the certificates
    folder: Path

    def url(self, *, host: str = HOST, user: str = "penstock", more: str = "") -> str:
        return f"postgresql://{user}:{PASSWORD}@{host}:{self.server.port}/shop?hostaddr=127.0.0.1{more}"

    def origin(self, url: str | None = None, **tls: str) -> PostgresSource:
        options = Options.model_validate({"url": url or self.url(), "tls": tls})
        streams = {"orders": StreamOptions.model_validate({"cursor": "id", "unique": True})}
        tables.OPENED.append(build(options, streams, self.context))
        return tables.OPENED[-1]

    @property
    def context(self) -> Context:
        return Context(pipeline="shop", folder=str(self.folder), probe=NoProbe())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with _folder() as folder:
        ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
        certificate, key = ours.sign("server", host=HOST)
        ours.sign("certified")
        theirs.sign("certified")
        owned = folder / "server.key"
        shutil.copy(key, owned)
        owned.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(owned, unprivileged_user().pw_uid, -1)
        tls = {"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": owned, "ssl_ca_file": ours.root}
        with PostgresServer({name: str(value) for name, value in tls.items()}) as server:
            url = server.database("shop")
            execute(url, ORDERS, "CREATE ROLE certified LOGIN", "GRANT SELECT ON orders TO certified")
            arrive(url, 10)
            (server.data / "pg_hba.conf").write_text(RULES)
            execute(url, "SELECT pg_reload_conf()")
            yield Site(server, folder)


@contextmanager
def _folder() -> Iterator[Path]:
    """One that the server may enter."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-tls-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def works(site: Site, url: str | None = None, **tls: str) -> bool:
    """Both drivers connect and read; whether both are encrypted."""
    origin = site.origin(url, **tls)
    assert ids(origin, planned(origin)) == [*range(1, 11)]
    used = "SELECT count(*) = 1 FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
    [[session]] = origin._session.rows(sql.SQL(used), table="")
    with arrow.connect(origin._session.target.conninfo) as connection, connection.cursor() as cursor:
        cursor.execute(used)
        [worker] = cursor.fetchone()
    assert session == worker
    return bool(session)


def fails(site: Site, url: str | None = None, **tls: str) -> str:
    """Neither driver connects, and both have the same next step."""
    origin = site.origin(url, **tls)
    with pytest.raises(ConnectionFailed) as failed:
        origin.connect()
    there = connection_target(origin._options, site.context, origin._options.url, key="url", side="source")
    with pytest.raises(arrow.Error) as refused:
        arrow.connect(there.conninfo)
    assert connect_error(there.where, str(refused.value)).next_step == failed.value.next_step
    return failed.value.next_step


class TestTheServer:
    @pytest.mark.parametrize(
        "tls",
        [
            {"mode": "verify-full", "root_certificate": "ours.crt"},
            {"mode": "verify-ca", "root_certificate": "ours.crt"},
            {"mode": "require"},
            {"mode": "prefer"},
            {},
        ],
    )
    def test_it_is_encrypted(self, site: Site, tls: dict[str, str]) -> None:
        assert works(site, **tls)

    def test_it_is_not_if_that_is_said(self, site: Site) -> None:
        assert not works(site, mode="disable")
        assert not works(site, site.url(more="&sslmode=disable"))

    def test_what_the_url_says_is_kept_unless_tls_says_otherwise(self, site: Site) -> None:
        root = f"&sslrootcert={site.folder / 'ours.crt'}"
        assert works(site, site.url(more=f"&sslmode=verify-full{root}"))
        assert works(site, site.url(more=root), mode="verify-full")
        assert works(site, site.url(more="&sslmode=disable"), mode="require")
        assert works(site, site.url(more=f"&sslrootcert={site.folder / 'theirs.crt'}"), root_certificate="ours.crt")

    def test_a_foreign_authority(self, site: Site) -> None:
        step = fails(site, mode="verify-full", root_certificate="theirs.crt")
        assert step.startswith("name the certificates that the server's descends from in `tls.root_certificate`")

    def test_another_name(self, site: Site) -> None:
        other = site.url(host="other.test")
        step = fails(site, other, mode="verify-full", root_certificate="ours.crt")
        assert step.startswith("put the name that the server's certificate is for into `url`")
        assert works(site, other, mode="verify-ca", root_certificate="ours.crt")

    def test_what_the_machine_trusts(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(site.folder / "ours.crt"))
        assert works(site, root_certificate="system")
        assert works(site, site.url(more="&sslrootcert=system"))
        assert "into `url`" in fails(site, site.url(host="other.test"), root_certificate="system")
        assert "verify-full" in fails(site, mode="require", root_certificate="system")
        monkeypatch.setenv("SSL_CERT_FILE", str(site.folder / "theirs.crt"))
        assert "root_certificate" in fails(site, root_certificate="system")

    def test_a_file_that_is_not_there(self, site: Site) -> None:
        with pytest.raises(InputError) as missing:
            site.origin(mode="verify-full", root_certificate="no/where.crt").connect()
        assert missing.value.what == (
            f"there is no file {site.folder}/no/where.crt, which `tls.root_certificate` of the source names"
        )

    def test_a_server_without_tls(self, postgres_server: PostgresServer, site: Site) -> None:
        step = fails(site, postgres_server.url(), mode="require")
        assert step == "turn TLS on at the server, or set `tls.mode` (sslmode in `url`) to prefer"


class TestOurs:
    def test_a_certificate_is_enough(self, site: Site) -> None:
        url = f"postgresql://certified@{HOST}:{site.server.port}/shop?hostaddr=127.0.0.1"
        ours = {"mode": "verify-full", "root_certificate": "ours.crt"}
        assert works(
            site, url, **ours, certificate="certified-by-ours.crt", key=str(site.folder / "certified-by-ours.key")
        )
        step = fails(site, url, **ours, certificate="certified-by-theirs.crt", key="certified-by-theirs.key")
        assert step.startswith("name a certificate and its key that the server accepts")
        assert fails(site, url, **ours).startswith("name a certificate and its key that the server accepts")

    def test_a_key_that_others_may_read(self, site: Site) -> None:
        loose = site.folder / "loose.key"
        shutil.copy(site.folder / "certified-by-ours.key", loose)
        loose.chmod(0o644)
        step = fails(site, mode="require", certificate="certified-by-ours.crt", key="loose.key")
        assert step.endswith("chmod 600")
