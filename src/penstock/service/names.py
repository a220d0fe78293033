"""Names in paths: each is one segment, percent-encoded, and is decoded by itself."""

from __future__ import annotations

from penstock.links.http import protocol
from penstock.service.problems import Problem


def read_name(segment: str) -> str:
    """The name of a stream, a producer or a slice; Problem 400 if it is none."""
    if len(segment) > protocol.MOST_NAME:
        raise Problem(400, f"a name in the path has more than {protocol.MOST_NAME} characters", "shorten it")
    try:
        return protocol.decode_name(segment)
    except ValueError:
        raise Problem(400, "a name in the path is not UTF-8, percent-encoded", "encode it as UTF-8") from None
