"""Certificates for a test, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs the certificates of others. Its own is `root`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.root, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        _openssl("req", "-x509", "-subj", f"/CN={name}", "-days", "2", *_NEW, "-keyout", self._key, "-out", self.root)

    def sign(self, subject: str, *, host: str | None = None) -> tuple[Path, Path]:
        """A certificate and its key."""
        stem = self._folder / f"{subject}-by-{self._name}"
        certificate, key, request = (stem.with_suffix(end) for end in (".crt", ".key", ".csr"))
        _openssl("req", "-subj", f"/CN={subject}", *_NEW, "-keyout", key, "-out", request)
        named = self._folder / f"{stem.name}.ext"
        named.write_text(f"subjectAltName=DNS:{host}\n" if host else "basicConstraints=CA:FALSE\n")
        signed = ("-CA", self.root, "-CAkey", self._key, "-CAcreateserial", "-days", "2", "-extfile", named)
        _openssl("x509", "-req", "-in", request, *signed, "-out", certificate)
        key.chmod(0o600)
        return certificate, key


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]} failed: {done.stderr}")
