"""Separates the SQL statements of a message from its text, so that they can be pasted."""

from __future__ import annotations

import re

#: a whole statement in capitals, up to its semicolon; a function body may contain semicolons too
_STATEMENT = re.compile(r"\b(?:CREATE|ALTER|GRANT|DROP|SELECT) (?:\$\$.*?\$\$|[^;$`…])*;", re.DOTALL)


def split_statements(text: str) -> tuple[str, list[str]]:
    """Return a message without its SQL statements, and the statements in order."""
    found = _STATEMENT.findall(text)
    if not found:
        return text, []
    before, _, after = _STATEMENT.sub("\0", text).partition("\0")
    before, after = before.rstrip(" :") or "run this", after.replace("\0", "").strip(" ,;.")
    return f"{before}, {after}:" if after else f"{before}:", found
