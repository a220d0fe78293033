"""SQL that a message asks a user to run, apart from its words, so that it can be pasted."""

from __future__ import annotations

import re

#: a whole statement in capitals, up to its semicolon; the body of a function may have some of its own
_STATEMENT = re.compile(r"\b(?:CREATE|ALTER|GRANT|DROP|SELECT) (?:\$\$.*?\$\$|[^;$`…])*;", re.DOTALL)


def apart(text: str) -> tuple[str, list[str]]:
    """The words of a message, and the statements in it, in their order."""
    found = _STATEMENT.findall(text)
    if not found:
        return text, []
    before, _, after = _STATEMENT.sub("\0", text).partition("\0")
    before, after = before.rstrip(" :") or "run this", after.replace("\0", "").strip(" ,;.")
    return f"{before}, {after}:" if after else f"{before}:", found
