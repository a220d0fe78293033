"""First loads and the fold: ranges of tables among the documents of their changes lead to what the tables hold.

The rule is that a range is read after every document that was delivered before it. Everything else is free: what
happens between two ranges, which tables come first, how often a range is read again, which tables are loaded again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.core.ops_tables import SHAPE, Document, Tables

from penstock.core.ops import Row, State, fold

#: the fields of each table; None: every entity
CLEARS: dict[str, list[Document]] = {
    "images": [{"op": "clear", "field": "post"}, {"op": "clear", "field": "size"}],
    "tags": [{"op": "clear", "field": "tags"}],
    "posts": [{"op": "clear", "field": "title"}],
}


def header(table: str, *ops: Document, **more: Any) -> Document:
    return {"v": 1, "table": table, "ops": list(ops), **more}


def rows_of(tables: Tables, table: str) -> list[tuple[Any, Document]]:
    """The rows of a table with their keys, in order, as the documents that a load delivers."""
    if table == "images":
        return [
            (
                key,
                header(
                    table,
                    {"op": "set", "field": "post", "value": post},
                    {"op": "set", "field": "size", "value": size},
                    key=key,
                    creates=True,
                ),
            )
            for key, (post, size) in sorted(tables.images.items())
        ]
    if table == "tags":
        return [
            ((image, tag), header(table, {"op": "add", "field": "tags", "value": tag}, key=image))
            for image, tag in sorted(tables.tags)
        ]
    where = [(post, {"field": "post", "eq": post}, title) for post, title in sorted(tables.posts.items())]
    return [
        (
            post,
            header(
                table,
                {"op": "query_op_set", "where": match, "ops": [{"op": "set", "field": "title", "value": title}]},
            ),
        )
        for post, match, title in where
    ]


@dataclass
class Delivery:
    """A consumer of the documents, and of ranges of the tables."""

    tables: Tables
    random: Random
    delivered: list[Document] = field(default_factory=list)
    #: documents that were delivered
    position: int = 0

    def live(self) -> None:
        for _ in range(self.random.choice((0, 1, 2, 5))):
            self.tables.change()

    def window(self) -> None:
        """Everything that there is, or a part of it."""
        upto = self.random.randint(self.position, len(self.tables.documents))
        self.delivered += self.tables.documents[self.position : upto]
        self.position = upto

    def load(self, table: str) -> None:
        """Range after range, with windows between them; some are read twice, and the second reading counts."""
        after: Any = None
        while True:
            self.live()
            if self.random.random() < 0.3:
                self.window()
                self.live()
            found = [(key, row) for key, row in rows_of(self.tables, table) if after is None or key > after]
            upto = found[min(2, len(found) - 1)][0] if found and len(found) > 3 else None
            read = self.read(table, after, upto)
            while self.random.random() < 0.2:  # killed: the same range, later
                self.live()
                read = self.read(table, after, upto)
            self.delivered += read
            if upto is None:
                return
            after = upto

    def read(self, table: str, after: Any, upto: Any) -> list[Document]:
        return [
            row
            for key, row in rows_of(self.tables, table)
            if (after is None or key > after) and (upto is None or key <= upto)
        ]

    def clear(self, table: str) -> None:
        self.delivered.append(header(table, *CLEARS[table]))

    def finish(self) -> State:
        self.delivered += self.tables.documents[self.position :]
        self.position = len(self.tables.documents)
        folded = fold(State(), SHAPE, [Row(number, each) for number, each in enumerate(self.delivered)])
        assert not folded.quarantined
        return folded.state


class DeclaredOnce(Tables):
    """Tables as an outbox has them: a field is declared once, so no image has a title of its own.

    It would count again once the titles of the posts have been cleared, and with them that of a post that is gone.
    """

    def _title_seen(self, post: int | None) -> Document:
        return {"op": "set", "field": "title", "value": None}


def begin(random: Random, kind: type[Tables] = Tables) -> Delivery:
    """Tables with rows, before there are triggers; and documents since then."""
    tables = kind(random)
    for _ in range(random.choice((0, 5, 25))):
        tables.change()
    tables.documents.clear()
    return Delivery(tables, random)


def load_all(delivery: Delivery) -> None:
    delivery.delivered += [header("images", {"op": "clear"}), header("posts", *CLEARS["posts"])]
    order = ["images", "tags", "posts"]
    delivery.random.shuffle(order)
    for table in order:
        delivery.load(table)


@pytest.mark.parametrize("seeds", [range(250), range(250, 500)], ids=str)
def test_a_first_load_leads_to_what_the_tables_hold(seeds: range) -> None:
    for seed in seeds:
        delivery = begin(Random(seed))
        delivery.live()
        delivery.window()
        load_all(delivery)
        state = delivery.finish()
        assert state.entities == delivery.tables.truth, seed
        assert state.early == {}, seed


@pytest.mark.parametrize("seeds", [range(150), range(150, 300)], ids=str)
def test_a_load_that_begins_again(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        delivery = begin(random, DeclaredOnce)
        load_all(delivery)
        begin_again(delivery, random.choices(["tags", "posts", "all"], k=random.randint(1, 3)))
        assert delivery.finish().entities == delivery.tables.truth, seed


def begin_again(delivery: Delivery, again: list[str]) -> None:
    """One table again while the rest goes on; or all, after changes were missed."""
    for table in again:
        delivery.window()
        if table == "all":
            missed = len(delivery.tables.documents)
            delivery.live()
            del delivery.tables.documents[missed:]
            delivery.position = min(delivery.position, missed)
            delivery.finish()
            load_all(delivery)
        else:
            delivery.clear(table)
            delivery.load(table)


def test_a_range_that_is_older_than_what_was_delivered_is_noticed() -> None:
    """A reader on a standby that is behind: the value of a change that was delivered goes back for good."""
    wrong = 0
    for seed in range(60):
        delivery = begin(Random(seed))
        stale = {table: rows_of(delivery.tables, table) for table in CLEARS}
        delivery.live()
        delivery.live()
        delivery.delivered += delivery.tables.documents
        delivery.position = len(delivery.tables.documents)
        for table in CLEARS:
            delivery.delivered += [row for _, row in stale[table]]
        wrong += delivery.finish().entities != delivery.tables.truth
    assert wrong > 10
