"""Going back by a value of the cursor, on a real server."""

from dataclasses import replace

import pytest
from tests.sources.loads import Loader, loader, made, of
from tests.sources.tables import execute, rows

from penstock.core.marks import Mark
from penstock.errors import StreamRefused
from penstock.sources.postgres import marks
from penstock.sources.postgres.marks import KeysetMark


def keyset_of(mark: Mark | None) -> KeysetMark:
    assert mark
    found = marks.read(mark)
    assert isinstance(found, KeysetMark)
    return found


class TestRewinding:
    @pytest.fixture
    def load(self, database: str) -> Loader:
        made(database)
        return loader(database, of(10**6), first_load="cursor").run()

    def to(self, load: Loader, value: str) -> Mark | None:
        origin = load.open()
        return origin.mark_at("t", origin.content("t"), load.last, value)

    def test_everything_from_a_value_on_is_read_again(self, database: str, load: Loader) -> None:
        mark = self.to(load, "2024-01-01 00:01:00Z")
        assert load.last
        assert keyset_of(mark).key == ("2024-01-01 00:00:59+00", "950")
        load.last, before = replace(load.last, mark=mark), len(load.rows)
        load.run()
        found = rows(database, "SELECT n FROM t WHERE c >= '2024-01-01 00:01:00Z' ORDER BY 1")
        assert sorted(load.rows[before:]) == [row[0] for row in found]

    def test_a_value_below_all_rows_is_the_beginning(self, load: Loader) -> None:
        assert self.to(load, "2024-01-01Z") is None
        assert self.to(load, "-infinity") is None

    def test_where_it_is_already(self, load: Loader) -> None:
        assert load.last
        assert keyset_of(self.to(load, "infinity")).key == keyset_of(load.last.mark).key

    def refusal(self, load: Loader, value: str) -> tuple[str, str]:
        with pytest.raises(StreamRefused) as refused:
            self.to(load, value)
        return refused.value.what, refused.value.next_step

    def test_never_ahead(self, database: str, load: Loader) -> None:
        execute(database, "INSERT INTO t VALUES (0, 0, '2025-01-01Z')")
        assert self.refusal(load, "2026-01-01Z") == (
            "the stream cannot be rewound to '2026-01-01Z': its mark, up to c 2024-01-01 00:01:36+00, id 995, is not "
            "there yet, and rows would be left out",
            "name a value of c that lies behind the mark",
        )

    def test_no_value_of_the_cursor(self, load: Loader) -> None:
        what, step = self.refusal(load, "noon")
        assert what == (
            "the stream cannot be rewound to 'noon': invalid input syntax for type timestamp with time zone: \"noon\""
        )
        assert step.startswith("name a value of c, which is timestamp with time zone, as Postgres writes it")

    def test_in_the_middle_of_a_load(self, load: Loader) -> None:
        half = loader(load.url, of(400)).begin()
        assert half.turn()
        assert self.refusal(half, "2024-01-01 00:01:00Z")[0] == (
            "the stream cannot be rewound to '2024-01-01 00:01:00Z': its first load is not finished yet"
        )

    def test_a_stream_without_a_cursor(self, load: Loader) -> None:
        load.options = {}
        assert self.refusal(load, "1")[0] == (
            "the stream cannot be rewound to '1': it has no cursor and is read whole in every run"
        )
