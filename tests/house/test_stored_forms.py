"""What penstock stores outside of its process has the form that docs/compatibility.md promises."""

from __future__ import annotations

import json

import pytest
from tests.house.stored_forms import FROZEN, stored_forms

WHAT_TO_DO = """
The stored form {name!r} has changed. Stores, sinks and spools of the release before have the old one.

1. If you did not mean to change it, undo the change.
2. If no release has the old form yet, go to step 5.
3. Give the form a new version (docs/compatibility.md lists where each has its own), and refuse newer ones.
4. Read and upgrade the form of the minor release before: for the store a migration in store/migrations, for the others
   a reader beside the new one. Test it with a copy that the release before has written.
5. Write a line into CHANGELOG.md, and say whether a roll back is possible.
6. `python -m tests.house.stored_forms` writes the frozen copy anew; commit it with the change.
"""


@pytest.mark.parametrize("name", sorted(stored_forms()))
def test_a_stored_form_is_as_it_was(name: str) -> None:
    frozen = json.loads(FROZEN.read_text())
    now = json.loads(json.dumps(stored_forms()[name]))
    assert now == frozen.get(name), WHAT_TO_DO.format(name=name)


def test_no_form_has_gone() -> None:
    assert set(json.loads(FROZEN.read_text())) == set(stored_forms())
