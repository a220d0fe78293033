"""Small JSON documents with one spelling each, so that a hash of one is the same everywhere.

Floats are refused: a mark or a fingerprint must never pass through a lossy type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Union

Json = Union[None, bool, int, str, Sequence["Json"], Mapping[str, "Json"]]  # noqa: UP007 (a forward reference)
Document = Mapping[str, Json]


def canonical(document: Json) -> str:
    """The one spelling of a document: sorted keys, no spaces, ASCII."""
    _refuse_lossy(document, "$")
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def parse(text: str) -> dict[str, Any]:
    """A document from its text; anything but an object is refused."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, got {type(document).__name__}")
    return document


def digest(*texts: str) -> str:
    """A hash over several texts; lengths are hashed too, so that no two lists of texts run together."""
    state = hashlib.sha256()
    for text in texts:
        raw = text.encode()
        state.update(len(raw).to_bytes(8, "big"))
        state.update(raw)
    return state.hexdigest()


def _refuse_lossy(value: Json, where: str) -> None:
    if value is None or isinstance(value, bool | int | str):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: keys must be text, not {type(key).__name__}")
            _refuse_lossy(inner, f"{where}.{key}")
        return
    if isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_lossy(inner, f"{where}[{index}]")
        return
    raise TypeError(f"{where}: {type(value).__name__} has no exact place in a document; use text")
