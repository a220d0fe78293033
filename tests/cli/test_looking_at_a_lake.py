"""`check`, `plan` and `discover` on a pipeline out of a lake: from metadata alone, and the lake stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.looked import Looking, document, tree
from tests.harness.faults import Command
from tests.sources.lake.lakes import LakeWorld, orders

FILE = """
pipelines:
  export:
    source: {{type: lake, namespace: shop}}
    sink: {{type: files, directory: out}}
    streams: {{{streams}}}
"""


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 40))
    lake.land(orders(41, 60))
    lake.make(orders(1, 1), "theirs")
    lake.append(orders(1, 5), "theirs")
    (tmp_path / "export.yaml").write_text(FILE.format(streams="orders: {}"))
    return lake


def looked(lake: LakeWorld, verb: str, *, code: int = 0) -> dict[str, Any]:
    before = tree(lake.folder)
    done = Looking(lake.folder, None).run(verb, "export.yaml", "--json")
    assert done.code == code, done.out + done.err
    assert tree(lake.folder) == before
    return document(done)


def stream(found: dict[str, Any]) -> dict[str, Any]:
    [only] = found["pipelines"][0]["streams"]
    assert isinstance(only, dict)
    return only


def test_rows_ahead_are_planned_and_then_gone(lake: LakeWorld) -> None:
    ahead = stream(looked(lake, "plan"))
    assert ahead["left"]["rows"] == 60
    assert sum(slice_["rows"] for slice_ in ahead["slices"]) == 60
    assert Command(lake.folder, "loop").run("run", "export.yaml").code == 0
    after = stream(looked(lake, "plan"))
    assert (after["slices"], after["left"], after["note"]) == ([], None, None)
    kinds = {remark["kind"] for remark in stream(looked(lake, "check"))["remarks"]}
    assert kinds >= {"guarantee", "gap"}


def test_rows_of_others_are_told_before_they_are_stamped(lake: LakeWorld) -> None:
    (lake.folder / "export.yaml").write_text(FILE.format(streams="theirs: {adopt: true}"))
    ahead = stream(looked(lake, "plan"))
    assert "prepares the source first" in ahead["note"]
    advice = [remark["text"] for remark in stream(looked(lake, "check"))["remarks"] if remark["kind"] == "advice"]
    assert any("adds the column _ingest_seq and rewrites" in text for text in advice)


def test_a_table_that_was_rolled_back_is_told_by_a_look(lake: LakeWorld) -> None:
    before = lake.state().main
    lake.land(orders(61, 70))
    assert Command(lake.folder, "loop").run("run", "export.yaml").code == 0
    assert before
    lake.table().manage_snapshots().rollback_to_snapshot(before.id).commit()
    for verb in ("check", "plan"):
        problem = stream(looked(lake, verb, code=1))["problem"]
        assert "was rolled back" in problem["what"]
        assert "penstock rewind export.yaml" in problem["next_step"]


def test_tables_of_both_kinds_are_discovered(lake: LakeWorld) -> None:
    found = {each["stream"]: each for each in looked(lake, "discover")["streams"]}
    assert (found["orders"]["what"], found["orders"]["rows"], found["orders"]["synced"]) == ("log", 60, True)
    assert found["theirs"]["proposal"] == {"adopt": True}
    assert not found["theirs"]["synced"]
