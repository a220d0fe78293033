"""Every type of the vocabulary, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct, Type

names = st.text("abc_ XY.-<>()':,\"\\é9", max_size=6)
decimals = st.integers(1, 76).flatmap(lambda digits: st.builds(Decimal, st.just(digits), st.integers(-9, digits + 3)))
simple: st.SearchStrategy[Type] = st.sampled_from(Plain) | decimals | st.builds(Fixed, st.integers(1, 99))


def _nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.lists(st.tuples(names, inner), max_size=4).map(tuple)
    return st.builds(List, inner) | st.builds(Map, inner, inner) | st.builds(Struct, fields)


types: st.SearchStrategy[Type] = st.recursive(simple, _nested, max_leaves=8)
