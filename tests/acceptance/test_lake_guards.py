"""The script that removes guards does not rot: every edit still applies, and every failure has one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.acceptance import lake_guards
from tests.acceptance.lake_guards import FAILURES, GUARDS, TOP, Edit, Guard, edited


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.number}: {guard.guard}")
def test_every_edit_still_applies(guard: Guard, tmp_path: Path) -> None:
    code = edited(guard, tmp_path)
    for edit in guard.edits:
        text = (code / "penstock" / edit.file).read_text()
        assert text != (TOP / "src" / "penstock" / edit.file).read_text()
        ast.parse(text)


def test_every_failure_has_a_test_and_a_guard() -> None:
    tests = {
        node.name: ast.get_docstring(node) or ""
        for node in ast.parse((TOP / lake_guards.TESTS).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert set(FAILURES) == set(range(1, 9)) == {guard.number for guard in GUARDS}
    assert [tests[test][:2] for _, test in FAILURES.values()] == [f"{number}." for number in FAILURES]
    assert set(tests) == {test for _, test in FAILURES.values()}


def test_an_edit_that_does_not_apply_is_loud() -> None:
    with pytest.raises(SystemExit, match="there 0 times, not once"):
        Edit("lake/names.py", "nowhere", "").applied("something else")
    with pytest.raises(SystemExit, match="there 2 times, not once"):
        Edit("lake/names.py", "a", "").applied("a a")


def test_the_edited_copy_is_what_runs(tmp_path: Path) -> None:
    assert lake_guards.imported_from(edited(GUARDS[0], tmp_path)) == str(tmp_path / "penstock" / "__init__.py")
