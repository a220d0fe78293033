"""Whether a stream fits its table, before anything is intended. Without PyIceberg as long as nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.core.documents import Document
from penstock.core.drift import absent, quarantined
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.place import Place
from penstock.lake.standing import Standing
from penstock.ports import StreamInfo
from penstock.sinks.lake.options import StreamOptions

#: column names that the lake and the pipe use themselves
RESERVED = (*names.INTERNAL, "_change")


@dataclass(frozen=True)
class Checks:
    """One stream against one table."""

    place: Place
    pipeline: str
    stream: StreamInfo
    table: str
    options: StreamOptions
    key: Sequence[str]
    content: Document

    def run(self, standing: Standing | None) -> None:
        """StreamRefused with the reason and the choice to make."""
        described: Any = self.content["columns"]
        columns = [column["name"] for column in described]
        self._check_names(columns)
        self._check_key(columns)
        if standing is not None:
            self._check_table(standing)
        if self.stream.kind is Kind.REFRESH:
            self._check_refresh(standing)
        self._check_schema(standing)

    def _check_names(self, columns: Sequence[str]) -> None:
        for name in columns:
            if name in RESERVED:
                self._refuse(
                    f"the column {name!r} has a name that the lake uses itself",
                    "leave it out with `columns`, or rename it in the source",
                )

    def _check_key(self, columns: Sequence[str]) -> None:
        if self.options.mode != "merge":
            return
        if not self.key:
            self._refuse(
                "mode merge needs a key, and the stream has no primary key", "name the columns with `key: [id]`"
            )
        gone, unfit = absent(self.content), quarantined(self.content)
        for name in self.key:
            if name not in columns:
                self._refuse(f"key names the column {name!r}, which the stream does not have", _one_of(columns))
            if name in gone or name in unfit:
                what = "the stream no longer has" if name in gone else "has another type now"
                self._refuse(
                    f"the table is keyed by the column {name!r}, which {what}",
                    "change it back at the source, or by `shape: {rename: …}` or `shape: {cast: …}`; or land in "
                    "another table, with another `into` and `key`",
                )

    def _check_table(self, standing: Standing) -> None:
        if not standing.ours:
            if not self.options.into_existing:
                self._refuse(
                    f"the table {self._name} is there already, and penstock did not make it",
                    "set `into_existing: true` on the stream to land in it (it gets the column _ingest_seq), or name "
                    "another table with `into`",
                )
            return
        if standing.mode != self.options.mode:
            self._refuse(
                f"the table {self._name} was made with mode {standing.mode}, not {self.options.mode}",
                f"set `mode: {standing.mode}`; or {self._migrate}; or name another `into`",
            )
        if standing.mode == "merge" and standing.key != tuple(self.key):
            self._refuse(
                f"the table {self._name} is keyed by {', '.join(standing.key)}, not by {', '.join(self.key)}",
                f"set `key: [{', '.join(standing.key)}]`; or {self._migrate}; or name another `into`",
            )

    def _check_refresh(self, standing: Standing | None) -> None:
        """A refresh replaces everything in the table."""
        if self.options.mode == "merge":
            self._refuse(
                "a full refresh cannot be merged: it does not say which rows are gone",
                "give the stream a cursor, or use `mode: append`, where each refresh replaces the one before",
            )
        others = [about for about in (standing.links() if standing else {}) if about[0] != self.pipeline]
        if others:
            self._refuse(
                f"a full refresh would replace all of {self._name}, where pipeline {others[0][0]!r} lands too",
                "name another `into`, or give the stream a cursor",
            )

    def _check_schema(self, standing: Standing | None) -> None:
        link = standing.link(self.pipeline, self.stream.name) if standing else None
        before = json.loads(link.position.content) if link else {}
        if all(before.get(key) == self.content.get(key) for key in ("columns", "drift")):
            return
        from penstock.sinks.lake.making import check_schema

        check_schema(self.place, self.table, self.content, self.options, self.key)

    @property
    def _migrate(self) -> str:
        """The way from one kind of table to another, for a next step."""
        return (
            f"run `penstock state migrate FILE --stream {self.stream.name}`, which keeps the table under another name "
            "and lets the stream begin again"
        )

    @property
    def _name(self) -> str:
        return f"{self.place.namespace}.{self.table}"

    def _refuse(self, what: str, step: str) -> NoReturn:
        raise StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=self.stream.name)


def _one_of(columns: Sequence[str]) -> str:
    return f"use one or more of: {', '.join(columns)}"
