"""Columns that the source no longer has: rows that are updated keep what the table has of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.harness.doubles import LoopMover
from tests.sinks.postgres.runs import PipelineRuns, open_sink, open_source
from tests.sources.tables import execute, rows

from penstock.errors import StreamFailed

SOURCE = """
CREATE SCHEMA copies;
CREATE TABLE t (id bigint PRIMARY KEY, at bigint NOT NULL, note text, v text);
CREATE UNIQUE INDEX ON t (at);
INSERT INTO t VALUES (1, 1, 'kept', 'a'), (2, 2, 'kept', 'b');
"""
COPY = "SELECT id, note, v FROM copies.t ORDER BY id"
CHANGED = "UPDATE t SET at = 3, v = 'c' WHERE id = 1; INSERT INTO t (id, at, v) VALUES (3, 4, 'd')"


class Dying(LoopMover):
    """A worker that dies before it has staged anything."""

    def move(self, *_: Any) -> Any:
        raise StreamFailed("the worker died", next_step="run again")


class Copying:
    """The table t of a database, kept in step with copies.t."""

    def __init__(self, url: str, **sink: Any) -> None:
        self.url, self.sink = url, sink
        self.moving = PipelineRuns()
        execute(url, SOURCE)
        assert self.run() == []

    def run(self, **more: Any) -> list[str]:
        return self.moving.run(
            "copy",
            open_source(self.url, cursor="at", unique=True),
            open_sink(self.url, into="copies.t", key=["id"], **self.sink),
            **more,
        )


def test_an_update_leaves_a_dropped_column_alone(database: str) -> None:
    copy = Copying(database)
    execute(database, "ALTER TABLE t DROP COLUMN note", CHANGED)
    assert copy.run() == []
    assert copy.moving.outcomes[-1] == {"created": 1, "updated": 1}
    assert rows(database, COPY) == [(1, "kept", "c"), (2, "kept", "b"), (3, None, "d")]
    execute(database, "UPDATE t SET at = 5, v = 'e' WHERE id = 2")
    assert copy.run() == [], "and in every slice after it"
    assert rows(database, COPY)[1] == (2, "kept", "e")


def test_a_row_that_differs_only_in_a_dropped_column_is_equal(database: str) -> None:
    copy = Copying(database, volatile=["at"])
    execute(database, "ALTER TABLE t DROP COLUMN note", "UPDATE t SET at = 3 WHERE id = 1")
    assert copy.run() == []
    assert copy.moving.outcomes[-1] == {"equal": 1}


def test_an_open_slice_leaves_a_dropped_column_alone(database: str) -> None:
    copy = Copying(database)
    execute(database, CHANGED)
    [died] = copy.run(mover=Dying)
    assert "the worker died" in died
    execute(database, "ALTER TABLE t DROP COLUMN note")
    assert copy.run() == []
    assert rows(database, COPY) == [(1, "kept", "c"), (2, "kept", "b"), (3, None, "d")]


def test_a_quarantined_row_leaves_a_dropped_column_alone(database: str) -> None:
    copy = Copying(database, bad_rows="quarantine")
    execute(database, "ALTER TABLE copies.t ADD CHECK (v <> 'c')", "ALTER TABLE t DROP COLUMN note", CHANGED)
    assert copy.run() == []
    assert copy.moving.outcomes[-1] == {"created": 1, "quarantined": 1}
    execute(database, "ALTER TABLE copies.t DROP CONSTRAINT t_v_check")
    sink: Any = open_sink(database, into="copies.t", key=["id"], bad_rows="quarantine")
    assert sink.replay("t", [], overwrite=True).updated == 1
    sink.close()
    assert rows(database, COPY)[0] == (1, "kept", "c")


def test_a_column_that_was_perhaps_renamed_stops_until_it_is_said(database: str) -> None:
    copy = Copying(database)
    execute(database, "ALTER TABLE t RENAME note TO remark", CHANGED)
    [said] = copy.run()
    assert said == (
        "perhaps a column was renamed: column note is gone, and remark of its type is new; if it was renamed, add to "
        "the stream `shape: {rename: {remark: note}}`, which goes on under the old name; if it was dropped, add "
        "`dropped: [note]`"
    )
    assert rows(database, COPY) == [(1, "kept", "a"), (2, "kept", "b")]
    assert copy.run(dropped=["note"]) == []
    assert rows(database, "SELECT id, note, remark, v FROM copies.t ORDER BY id") == [
        (1, "kept", "kept", "c"),
        (2, "kept", None, "b"),
        (3, None, None, "d"),
    ]
    execute(database, "UPDATE t SET at = 5, v = 'e' WHERE id = 2")
    assert copy.run() == [], "once a slice went through, the word is not needed any more"


@pytest.mark.parametrize("option", ["newer_than", "guard"])
def test_a_column_that_the_rules_need_may_not_go(database: str, option: str) -> None:
    copy = Copying(database, **{option: "note" if option == "newer_than" else ["note"]})
    execute(database, CHANGED)
    copy.run(mover=Dying)
    execute(database, "ALTER TABLE t DROP COLUMN note")
    [said] = copy.run()
    assert f"comes without the column note, which is gone at the source, and `{option}` needs it" in said
    copy.sink = {}
    assert copy.run() == []
    copy.sink = {option: "note" if option == "newer_than" else ["note"]}
    execute(database, "UPDATE t SET at = 5, v = 'e' WHERE id = 2")
    [said] = copy.run()
    assert f"`{option}` names the column note, which is gone at the source" in said
