"""The warehouse's bucket through Arrow's own S3 client: a look at it, and one document from it, without PyIceberg."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import ConnectionFailed, InputError, PenstockError
from penstock.lake.lake import Lake

#: what S3 and its likes say to those whom they do not let in
_CLOSED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "EXPIRED_TOKEN",
    "INVALID_CLIENT_TOKEN_ID",
)
_CODE = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?")


def check_bucket(lake: Lake) -> None:
    """See that the warehouse's bucket is there and lets us in; InputError or ConnectionFailed if not."""
    from pyarrow import fs

    if lake.folder is not None or lake.vended:
        return
    bucket = urlsplit(lake.warehouse).netloc
    try:
        found = _client(lake, bucket).get_file_info(bucket)
    except OSError as error:
        raise _explained(lake, bucket, error) from error
    if found.type == fs.FileType.NotFound:
        raise InputError(
            f"there is no bucket {bucket!r} {_where(lake)}",
            next_step=f"make the bucket, or correct `warehouse: {lake.warehouse}` and the property s3.endpoint",
        )


def is_occupied(lake: Lake, location: str) -> bool:
    """Whether a folder of the warehouse may hold files; True where only the catalog may look."""
    from pyarrow import fs

    if lake.folder is not None:
        folder = location.removeprefix("file://")
        return os.path.isdir(folder) and bool(os.listdir(folder))
    if lake.vended:
        return True
    key = location.partition("://")[2]
    bucket = key.partition("/")[0]
    try:
        found = _client(lake, bucket).get_file_info(fs.FileSelector(key, allow_not_found=True))
    except OSError as error:
        raise _explained(lake, bucket, error) from error
    return bool(found)


def read_object(lake: Lake, location: str) -> bytes:
    """An object's bytes; FileNotFoundError if it is not there."""
    at = urlsplit(location)
    try:
        with _client(lake, at.netloc).open_input_stream(location.partition("://")[2]) as stream:
            raw: bytes = stream.read()
            return raw
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explained(lake, at.netloc, error) from error


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
    try:
        return fs.S3FileSystem(region=lake.region or fs.resolve_s3_region(bucket), **arguments)
    except OSError as error:
        raise _explained(lake, bucket, error) from error


def _explained(lake: Lake, bucket: str, error: OSError) -> PenstockError:
    said = _CODE.search(str(error))
    code, status = (said[1], said[2]) if said else ("", None)
    if code == "NO_SUCH_BUCKET" or (not code and "not found" in str(error)):
        return InputError(
            f"there is no bucket {bucket!r} {_where(lake)}",
            next_step="make the bucket, or correct `warehouse` and the property s3.region",
        )
    if code in _CLOSED or status in ("401", "403"):
        return ConnectionFailed(
            f"the bucket {bucket!r} {_where(lake)} does not let us in ({code})",
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
