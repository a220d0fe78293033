"""The nearest valid name, and how a message suggests it."""

from __future__ import annotations

from penstock.core.names import did_you_mean, nearest, suggest


def test_case_is_ignored_and_the_valid_spelling_is_returned() -> None:
    assert nearest("ORDRES", ["Orders", "items"]) == "Orders"


def test_a_name_that_is_not_close_has_no_suggestion() -> None:
    assert nearest("zzz", ["orders", "items"]) is None
    assert did_you_mean("zzz", ["orders"]) == ""
    assert suggest("zzz", ["orders", "items"], "streams") == "streams: items, orders"
    assert suggest("zzz", [], "streams") == "streams: none"


def test_a_close_name_is_suggested() -> None:
    assert did_you_mean("ordres", ["orders"]) == "; did you mean 'orders'?"
    assert suggest("ordres", ["orders"], "streams") == "did you mean 'orders'?"


def test_synonyms_are_used_only_for_valid_names() -> None:
    synonyms = {"cursor": ("watermark",)}
    assert nearest("watermark", ["cursor", "columns"], synonyms=synonyms) == "cursor"
    assert nearest("watermark", ["columns"], synonyms=synonyms) is None
