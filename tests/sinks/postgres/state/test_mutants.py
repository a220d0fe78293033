"""Mistakes that the fold could have: each is made on purpose, and each leads to another state than the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql
from tests.harness.postgres import PostgresServer
from tests.sinks.postgres.state.entities import CHAIN, CLEAR, DELETE, PLAIN, Entities, add, document, fan_out, put, take

from penstock.core.ops import Layout
from penstock.links.postgres.literals import load_statement
from penstock.sinks.postgres.state import copies, fold
from penstock.sinks.postgres.state.commit import StateCommit
from penstock.sinks.postgres.state.documents import Documents
from penstock.sinks.postgres.state.tables import StateTables
from penstock.sinks.postgres.state.write import StateWrite

Patch = Callable[[pytest.MonkeyPatch], None]


def posts(post: int, **values: Any) -> dict[str, Any]:
    return fan_out("posts", {"field": "post", "eq": post}, *(put(name, value) for name, value in values.items()))


def users(author: int, name: str) -> dict[str, Any]:
    return fan_out("users", {"field": "author", "eq": author}, put("name", name))


def made(key: int, *ops: Any) -> dict[str, Any]:
    return document(*ops, key=key, creates=True)


#: slices in which every mistake shows
SLICES = (
    [
        made(1, add("x"), put("post", 1)),
        made(2, put("post", 2), put("title", "own")),
        made(5, put("size", 1), add("z")),
    ],
    [document(add("x"), key=1), document(take("x"), key=1), document(put("size", 3), key=9)],
    [posts(1, title="one"), made(3, put("post", 1)), made(9), document(put("post", 1), key=2)],
    [
        made(8, put("post", 1)),
        document(DELETE, key=5),
        made(5),
        document(put("post", 4), key=3),
        made(6, put("size", 7), add("t")),
    ],
    [posts(1, author=7), users(7, "ann"), posts(1, author=8), users(8, "bob"), document(put("size", 1), key=1)],
    [fan_out("other", {"field": "size", "eq": 7}, put("title", "hit")), document(put("size", 8), key=6)],
    [document({**CLEAR, "field": "title"}, table="posts"), made(7, put("post", 1))],
    [document({**CLEAR, "field": "tags"}), document(add("later"), key=6), document(add("y"), key=40)],
    [document(put("size", 1), key=1), document(put("size", 2), key=1), document({**CLEAR, "field": "post"})],
    [document(CLEAR), made(1, put("size", 1)), made(40)],
)


def in_sql(name: str, old: str, new: str) -> Patch:
    def patch(patching: pytest.MonkeyPatch) -> None:
        def load(room: str, wanted: str) -> sql.SQL:
            found = load_statement(room, wanted)
            if wanted != name:
                return found
            text = found.as_string(None)
            assert old in text
            return sql.SQL(text.replace(old, new))

        patching.setattr(copies, "load_statement", load)

    return patch


def without(owner: type, name: str, returns: Any = None) -> Patch:
    return lambda patching: patching.setattr(owner, name, lambda *_, **__: returns)


def _in_any_order(patching: pytest.MonkeyPatch) -> None:
    make = StateCommit._documents

    def documents(self: StateCommit, *given: Any) -> Documents:
        found = make(self, *given)
        return Documents(found.connection, found.entity, found.staging, found.parts[::-1])

    patching.setattr(StateCommit, "_documents", documents)


MISTAKES: dict[str, Patch] = {
    "none": lambda _: None,
    "an add and a remove cancel": in_sql(
        "last",
        "WHERE {which} AND",
        "WHERE NOT EXISTS (SELECT FROM penstock_ops q WHERE (q.eid, q.field, q.value) = (h.eid, h.field, h.value) "
        "AND q.adds <> h.adds) AND {which} AND",
    ),
    "barriers are forgotten": without(fold.Fold, "_list_barriers", []),
    "a barrier does not cut": without(fold.Fold, "_apply_barrier"),
    "a delete does not absorb": in_sql(
        "ends", "max(h.pos) FILTER (WHERE h.deletes)", "CASE WHEN NOT bool_or(h.creates) THEN max(h.pos) END"
    ),
    "a fan-out is forgotten for entities that come later": in_sql("give_values", "k.touched = {seg} OR", ""),
    "a fan-out reaches only entities of the slice": without(fold.Fold, "_bring"),
    "early ops are dropped": without(StateWrite, "_write_early"),
    "an entity that moves keeps the values of its old match": lambda patching: patching.setattr(
        fold.Fold, "_set_scalar", lambda self, each, _, real=fold.Fold._set_scalar: real(self, each, None)
    ),
    "fan-outs do not decide again after a barrier": lambda patching: patching.setattr(
        fold.Fold, "_settled", lambda self, base, fields: base
    ),
    "a truncated fan-out table keeps its values": without(StateTables, "forget_fields"),
    "parts are taken in any order": _in_any_order,
    "the first write of a field wins": in_sql("last", "o.pos DESC, o.n DESC", "o.pos, o.n"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(postgres_server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name](monkeypatch)
    assert any(differs(postgres_server.database(), layout) for layout in (PLAIN, CHAIN)) is (name != "none")


def differs(database: str, layout: Layout) -> bool:
    """Whether the state differs from the reference after one of the slices."""
    entities = Entities(database, layout)
    for documents in SLICES:
        entities.deliver(*documents, parts=2)
        if entities.differences():
            return True
    return False
