"""Checks the warehouse's bucket and reads documents from it through Arrow's own S3 client, without PyIceberg."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import ConnectionFailed, InputError, PenstockError
from penstock.lake.lake import Lake

#: codes of S3 servers that refuse access
_DENIED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "EXPIRED_TOKEN",
    "INVALID_CLIENT_TOKEN_ID",
)
_CODE = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?")


def check_bucket(lake: Lake) -> None:
    """Check that the warehouse's bucket exists and is accessible; InputError or ConnectionFailed if not."""
    from pyarrow import fs

    if lake.folder is not None or lake.vended:
        return
    name = urlsplit(lake.warehouse).netloc
    with _explain_errors(lake, name):
        found = _client(lake, name).get_file_info(name)
    if found.type == fs.FileType.NotFound:
        raise _missing(lake, name)


def is_occupied(lake: Lake, location: str) -> bool:
    """Whether a folder of the warehouse may hold files; True where only the catalog may look."""
    from pyarrow import fs

    if lake.folder is not None:
        folder = location.removeprefix("file://")
        return os.path.isdir(folder) and bool(os.listdir(folder))
    if lake.vended:
        return True
    key = location.partition("://")[2]
    name = key.partition("/")[0]
    with _explain_errors(lake, name):
        return bool(_client(lake, name).get_file_info(fs.FileSelector(key, allow_not_found=True)))


def read_object(lake: Lake, location: str) -> bytes:
    """Read an object; FileNotFoundError if it does not exist."""
    name = urlsplit(location).netloc
    path = location.partition("://")[2]
    with _explain_errors(lake, name, of_object=True), _client(lake, name).open_input_stream(path) as stream:
        raw: bytes = stream.read()
        return raw


def _client(lake: Lake, bucket: str) -> Any:
    """Arrow's client, by the same properties that PyIceberg gives it in the workers."""
    from pyarrow import fs

    given = {
        "access_key": lake.given("s3.access-key-id", "client.access-key-id"),
        "secret_key": lake.given("s3.secret-access-key", "client.secret-access-key"),
        "session_token": lake.given("s3.session-token", "client.session-token"),
        "role_arn": lake.given("s3.role-arn", "client.role-arn"),
        "session_name": lake.given("s3.role-session-name", "client.role-session-name"),
        "proxy_options": lake.given("s3.proxy-uri"),
        "endpoint_override": lake.endpoint,
    }
    arguments: dict[str, Any] = {name: value for name, value in given.items() if value}
    for name in ("connect-timeout", "request-timeout"):
        if seconds := lake.given(f"s3.{name}"):
            arguments[name.replace("-", "_")] = float(seconds)
    for name, key in (("force_virtual_addressing", "s3.force-virtual-addressing"), ("anonymous", "s3.anonymous")):
        if text := lake.given(key):
            arguments[name] = text.lower() == "true"
    return fs.S3FileSystem(region=lake.region or fs.resolve_s3_region(bucket), **arguments)


@contextmanager
def _explain_errors(lake: Lake, bucket: str, *, of_object: bool = False) -> Iterator[None]:
    """Raise an error that explains what S3 answered. `of_object`: FileNotFoundError passes."""
    try:
        yield
    except OSError as error:
        if of_object and isinstance(error, FileNotFoundError):
            raise
        raise _explain(lake, bucket, error) from error


def _missing(lake: Lake, bucket: str) -> InputError:
    return InputError(
        f"there is no bucket {bucket!r} {_where(lake)}",
        next_step=f"create the bucket, or correct `warehouse: {lake.warehouse}` and the properties s3.endpoint and "
        "s3.region",
    )


def _explain(lake: Lake, bucket: str, error: OSError) -> PenstockError:
    said = _CODE.search(str(error))
    code, status = (said[1], said[2]) if said else ("", None)
    if code == "NO_SUCH_BUCKET" or (not code and "not found" in str(error)):
        return _missing(lake, bucket)
    if code in _DENIED or status in ("401", "403"):
        return ConnectionFailed(
            f"the bucket {bucket!r} {_where(lake)} refuses access ({code})",
            next_step="check s3.access-key-id and s3.secret-access-key in catalog.properties, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY; reading, writing, deleting and listing must be allowed there",
        )
    return ConnectionFailed(
        f"the bucket {bucket!r} {_where(lake)} cannot be reached: {lake.discreet(_last_words(error))}",
        next_step="see that s3.endpoint and s3.region in catalog.properties are right and that the server runs, then "
        "run again",
    )


def _where(lake: Lake) -> str:
    return f"at {lake.endpoint}" if lake.endpoint else f"in {lake.region or 'any region'}"


def _last_words(error: OSError) -> str:
    """Without the object's name before them and the request's id after them."""
    text = str(error).partition("AWS Error ")[2] or str(error)
    return text.partition(" (Request ID")[0].splitlines()[0]
