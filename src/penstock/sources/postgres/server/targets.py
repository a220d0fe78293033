"""Where to connect: what the URLs say, and what the options say besides."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from penstock.errors import InputError
from penstock.links.postgres.connection import Target
from penstock.ports import Context
from penstock.sources.postgres.options import Options, Tls

#: the file of certificates that the machine trusts, by distribution; the drivers' own libraries look elsewhere
_TRUSTED = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def primary(options: Options, context: Context) -> Target:
    """Where is planned, and rows are read unless there is a replica."""
    return _target(options, context, options.url.get_secret_value(), key="url")


def replica(options: Options, context: Context) -> Target | None:
    """Where rows are read instead."""
    return _target(options, context, options.replica.get_secret_value(), key="replica") if options.replica else None


def _target(options: Options, context: Context, url: str, *, key: str) -> Target:
    said = options.model_fields_set
    # What the URL says goes before our defaults, but not before what the user said here.
    return Target.of(
        url,
        key=key,
        application_name=None if _says(url, "application_name", said) else options.application_name,
        connect_timeout=None if _says(url, "connect_timeout", said) else options.connect_timeout,
        **_tls(options.tls, context, url),
    )


def _says(url: str, parameter: str, said_here: set[str]) -> bool:
    return parameter not in said_here and f"{parameter}=" in url.partition("?")[2]


def _tls(tls: Tls, context: Context, url: str) -> dict[str, str | None]:
    """The parameters of libpq that `tls` stands for; None: what the URL says."""
    mode: str | None
    said = dict(parse_qsl(urlsplit(url).query))
    mode, root = tls.mode, tls.root_certificate
    if (root or said.get("sslrootcert")) == "system":
        # As libpq has it: whoever trusts everyone that the machine trusts must look at the name.
        mode = mode or said.get("sslmode") or "verify-full"
        root = _trusted() if mode == "verify-full" else "system"
    elif root is not None:
        root = _file(root, "root_certificate", context)
    return {
        "sslmode": mode,
        "sslrootcert": root,
        "sslcert": tls.certificate and _file(tls.certificate, "certificate", context),
        "sslkey": tls.key and _file(tls.key, "key", context),
    }


def _trusted() -> str:
    candidates = [os.environ.get("SSL_CERT_FILE"), *_TRUSTED]
    return next((path for path in candidates if path and Path(path).is_file()), "system")


def _file(name: str, key: str, context: Context) -> str:
    path = Path(context.folder, Path(name).expanduser()).absolute()
    if not path.is_file():
        raise InputError(
            f"there is no file {path}, which `tls.{key}` of the source names",
            next_step=f"correct `tls.{key}`; a path that is not absolute starts at the folder of the pipeline file",
            pipeline=context.pipeline,
        )
    return str(path)
