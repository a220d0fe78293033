"""The versions of a stream's declared schema, kept beside its log: each batch names the one it was checked against.

<folder>/schemas.json   {"format", "versions": [{"takes", "columns", "primary_key", "extra_fields"}, …], "checksum"}
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import google_crc32c

from penstock.core.documents import Document, canonical
from penstock.errors import UNTOUCHED, InputError
from penstock.links.durable import sync, write_durably

_FILE = "schemas.json"
_FORMAT = 1


def schema_of(takes: str, columns: dict[str, str], primary_key: tuple[str, ...], extra_fields: str) -> Document:
    """The schema as it is kept."""
    return {
        "takes": takes,
        "columns": [list(each) for each in columns.items()],
        "primary_key": list(primary_key),
        "extra_fields": extra_fields,
    }


#: of a stream that was not declared
def free_schema(takes: str) -> Document:
    return schema_of(takes, {}, (), "keep")


def read_versions(folder: str) -> list[dict[str, Any]]:
    """The schemas by version, the first one is 1; []: there is no file."""
    path = os.path.join(folder, _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
        if document.pop("checksum") != _checksum(document):
            raise ValueError("its checksum is wrong")
        if document["format"] != _FORMAT:
            raise ValueError(f"it has format {document['format']}, and this penstock reads format {_FORMAT}")
        versions: list[dict[str, Any]] = document["versions"]
        return versions
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): it says which schema each batch was checked against",
            safe=UNTOUCHED,
            next_step="put the file back from a backup. Without one, move it away: versions begin again at 1",
        ) from None


def add_version(folder: str, versions: list[dict[str, Any]], schema: Document) -> list[dict[str, Any]]:
    """The versions with one more, on disk before a batch names it."""
    after = [*versions, dict(schema)]
    path = os.path.join(folder, _FILE)
    write_durably(f"{path}.new", text_of(after))
    os.rename(f"{path}.new", path)
    sync(folder)
    return after


def text_of(versions: Sequence[Document]) -> str:
    """The file's contents."""
    document: dict[str, Any] = {"format": _FORMAT, "versions": [*versions]}
    return canonical({**document, "checksum": _checksum(document)})


def _checksum(document: dict[str, Any]) -> int:
    return int(google_crc32c.value(canonical(document).encode()))
