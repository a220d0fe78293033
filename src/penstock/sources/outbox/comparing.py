"""`penstock verify` of an outbox: refused, because its rows are changes; says what to use instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.ports import ComparedColumns, ComparedRows, not_comparable


class RefusedComparison:
    """The methods of `ComparingSource`, each a refusal."""

    def compared_columns(self, stream: str, content: Content) -> ComparedColumns:
        """NotComparable."""
        _refuse(stream)

    def compared_rows(
        self, stream: str, content: Content, mark: Mark, columns: ComparedColumns, *, above: bool = False
    ) -> ComparedRows:
        """NotComparable."""
        _refuse(stream)

    def plan_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> Document:
        """NotComparable."""
        _refuse(stream)


def _refuse(stream: str) -> NoReturn:
    raise not_comparable(
        stream,
        "an outbox has changes of rows, and not the rows themselves",
        f"compare with a query over the stream's tables; `penstock loads start FILE --stream {stream}` reads them "
        "again, corrects what differs, and removes what they no longer have",
    )
