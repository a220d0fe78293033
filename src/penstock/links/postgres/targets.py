"""Where to connect: what a URL says, and what the options say besides."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

from penstock.errors import InputError
from penstock.links.postgres.connection import Target
from penstock.links.postgres.options import ServerOptions, Tls
from penstock.ports import Context

#: the file of certificates that the machine trusts, by distribution; the drivers' own libraries look elsewhere
_TRUSTED = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def connection_target(options: ServerOptions, context: Context, url: SecretStr, *, key: str, side: str) -> Target:
    """The database of a URL, which the option `key` of the source or sink holds."""
    said, text = options.model_fields_set, url.get_secret_value()
    # What the URL says goes before our defaults, but not before what the user said here.
    return Target.of(
        text,
        key=key,
        application_name=None if _says(text, "application_name", said) else options.application_name,
        connect_timeout=None if _says(text, "connect_timeout", said) else options.connect_timeout,
        **_tls(options.tls, context, text, side),
    )


def _says(url: str, parameter: str, said_here: set[str]) -> bool:
    return parameter not in said_here and f"{parameter}=" in url.partition("?")[2]


def _tls(tls: Tls, context: Context, url: str, side: str) -> dict[str, str | None]:
    """The parameters of libpq that `tls` stands for; None: what the URL says."""
    mode: str | None
    said = dict(parse_qsl(urlsplit(url).query))
    mode, root = tls.mode, tls.root_certificate
    if (root or said.get("sslrootcert")) == "system":
        # As libpq does it: the machine's certificate authorities prove a name only if the name is checked.
        mode = mode or said.get("sslmode") or "verify-full"
        root = _trusted() if mode == "verify-full" else "system"
    elif root is not None:
        root = _file(root, "root_certificate", context, side)
    return {
        "sslmode": mode,
        "sslrootcert": root,
        "sslcert": tls.certificate and _file(tls.certificate, "certificate", context, side),
        "sslkey": tls.key and _file(tls.key, "key", context, side),
    }


def _trusted() -> str:
    candidates = [os.environ.get("SSL_CERT_FILE"), *_TRUSTED]
    return next((path for path in candidates if path and Path(path).is_file()), "system")


def _file(name: str, key: str, context: Context, side: str) -> str:
    path = Path(context.folder, Path(name).expanduser()).absolute()
    if not path.is_file():
        raise InputError(
            f"there is no file {path}, which `tls.{key}` of the {side} names",
            next_step=f"correct `tls.{key}`; a path that is not absolute starts at the folder of the pipeline file",
            pipeline=context.pipeline,
        )
    return str(path)
