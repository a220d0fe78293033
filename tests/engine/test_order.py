"""Which stream has its turn where some must be ahead of others."""

from __future__ import annotations

import pytest

from penstock.engine.order import Ahead, from_the_end, next_of


@pytest.mark.parametrize(
    ("waiting", "ahead", "place"),
    [
        (["a", "b"], {}, 0),
        (["items", "orders"], {"items": {"orders"}}, 1),
        (["items", "other"], {"items": {"orders"}}, 0),
        (["a", "b"], {"a": {"b"}, "b": {"a"}}, 0),
        (["tree"], {"tree": {"tree"}}, 0),
    ],
)
def test_next(waiting: list[str], ahead: Ahead, place: int) -> None:
    assert next_of(waiting, ahead) == place


def test_from_the_end() -> None:
    ahead = {"items": {"orders", "goods"}, "orders": {"customers"}}
    assert from_the_end(["items", "alone", "orders", "customers", "goods"], ahead) == [
        "items",
        "goods",
        "orders",
        "customers",
    ]
    assert from_the_end(["a", "b"], {}) == []
    assert sorted(from_the_end(["a", "b"], {"a": {"b"}, "b": {"a"}})) == ["a", "b"]


@pytest.mark.parametrize(
    ("later", "ahead", "place"),
    [([], {}, 0), (["a"], {}, 1), (["a", "b"], {}, 2), (["a", "b", "c"], {}, 0), (["b", "c"], {"a": ["b"]}, 1)],
)
def test_those_that_may_come_later_do(later: list[str], ahead: Ahead, place: int) -> None:
    assert next_of(["a", "b", "c"], ahead, later) == place
