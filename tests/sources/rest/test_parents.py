"""Lists below the objects of another list: every child of every parent once, whatever happens to the parents."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.core.slices import Kind
from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.sources.rest import ChangingSource
from penstock.sources.rest.content import content_of
from penstock.sources.rest.options import Options, StreamOptions
from penstock.testing.contracts.source import drain, each_once

CARDS: dict[str, Any] = {"parent": "customers", "path": "customers/{id}/cards"}
STREAMS: dict[str, Any] = {"customers": {"time": {"lag": 0}}, "cards": CARDS}


class Cards(List):
    """The cards of all customers; their ids are the same for every customer."""

    stream = "cards"

    def open(self) -> ChangingSource:
        return source(self.server, self.folder, STREAMS)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> ChangingSource:
        return source(self.server, self.folder, STREAMS | {stream: options})

    def arrive(self, count: int) -> None:
        """Cards of a new customer, and one more customer without."""
        self.server.arrive("customers", 2)
        self.server.make(f"customers/{self.server.objects('customers')[-1][0]}/cards", count)

    def traces(self) -> Hashable:
        return (*self.rows(), *sorted(map(str, self.folder.rglob("*"))))

    def vanish(self) -> None:
        for parent, _ in self.server.objects("customers"):
            for id_, _ in self.server.objects(f"customers/{parent}/cards"):
                self.server.remove(f"customers/{parent}/cards", id_)

    def rows(self) -> list[Any]:
        found = []
        for parent, _ in self.server.objects("customers"):
            found += [(parent, id_) for id_, _ in self.server.objects(f"customers/{parent}/cards")]
        return found

    def tell(self, batch: Any) -> list[Any]:
        return list(zip(batch.column("parent_id").to_pylist(), batch.column("id").to_pylist(), strict=True))


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"customers": {}}) as server:
        server.arrive("customers", 30)
        for number, (id_, _) in enumerate(server.objects("customers")):
            server.make(f"customers/{id_}/cards", number % 5)
        yield server


def read(
    server: RestServer, folder: Path, streams: dict[str, Any] | None = None, said: list[str] | None = None, **more: Any
) -> list[Any]:
    opened = source(server, folder, streams or STREAMS, said=said, **more)
    try:
        origin = Cards(server, folder)
        return [row for one in drain(opened, origin) for row in one.rows]
    finally:
        opened.close()


def fail(server: RestServer, folder: Path, streams: dict[str, Any] | None = None) -> PenstockError:
    with pytest.raises((StreamFailed, StreamRefused)) as failed:
        read(server, folder, streams)
    assert failed.value.next_step
    return failed.value


@pytest.mark.parametrize("size", [7, 100])
def test_every_child_of_every_parent_once(size: int, server: RestServer, tmp_path: Path) -> None:
    parent = server.objects("customers")[3][0]
    server.make(f"customers/{parent}/cards", 40)
    streams = STREAMS | {"cards": CARDS | {"paging": {"size": size}}, "customers": {"paging": {"size": size}}}
    said: list[str] = []
    rows = read(server, tmp_path, streams, said)
    assert each_once(rows, Cards(server, tmp_path).rows())
    assert said == []
    asked = [(each["path"], *sorted(each["query"].items())) for each in server.requests()]
    repeated = [each for each in asked if ("limit", "1") not in each and asked.count(each) > 1]
    assert repeated == [], "a page was asked for twice"


def test_the_key_is_the_parents_id_and_the_childs(server: RestServer, tmp_path: Path) -> None:
    cards = CARDS | {"parent_column": "customer", "columns": {"amount": "int64"}}
    opened = source(server, tmp_path, STREAMS | {"cards": cards})
    content = opened.content("cards")
    (info,) = [each for each in opened.catalog() if each.name == "cards"]
    remarks = opened.explain("cards", content)
    opened.close()
    assert content.key == info.primary_key == ("customer", "id")
    assert [column.name for column in content.columns] == ["customer", "id", "amount", "json"]
    assert info.kind is Kind.REFRESH
    assert "for each object of customers" in remarks[0].text


def test_the_objects_own_text_is_kept(server: RestServer, tmp_path: Path) -> None:
    opened = source(server, tmp_path, STREAMS)
    texts: list[Any] = []

    class Whole(Cards):
        def tell(self, batch: Any) -> list[Any]:
            texts.extend(batch.column("json").to_pylist())
            return super().tell(batch)

    drain(opened, Whole(server, tmp_path))
    opened.close()
    assert texts
    assert all(text.startswith('{"id": "cu_') for text in texts)


def test_parents_that_come_and_go_between_runs(server: RestServer, tmp_path: Path) -> None:
    read(server, tmp_path)
    server.remove("customers", server.objects("customers")[4][0])
    server.arrive("customers", 3)
    server.make(f"customers/{server.objects('customers')[-1][0]}/cards", 4)
    assert each_once(read(server, tmp_path), Cards(server, tmp_path).rows())


@pytest.mark.parametrize("status", [404, 410])
def test_a_parent_that_is_gone_is_said_and_the_others_are_read(status: int, server: RestServer, tmp_path: Path) -> None:
    gone = server.objects("customers")[4][0]
    server.change(f"customers/{gone}/cards", status=status)
    said: list[str] = []
    rows = read(server, tmp_path, said=said)
    assert each_once(rows, [row for row in Cards(server, tmp_path).rows() if row[0] != gone])
    assert said == ["cards: 1 parent was gone when its objects were asked for"]


def test_a_list_that_no_parent_has_is_not_an_empty_list(server: RestServer, tmp_path: Path) -> None:
    failed = fail(server, tmp_path, STREAMS | {"cards": CARDS | {"path": "customer/{id}/cards"}})
    assert "none of the 30 parents has this list: GET customer/cu_" in failed.what


@pytest.mark.parametrize("status", [403, 422, 500])
def test_a_parent_whose_list_cannot_be_read_fails_the_stream(status: int, server: RestServer, tmp_path: Path) -> None:
    server.change(f"customers/{server.objects('customers')[4][0]}/cards", status=status)
    opened = source(server, tmp_path, STREAMS, retries=1)
    with pytest.raises((StreamFailed, StreamRefused), match=f"status {status}"):
        drain(opened, Cards(server, tmp_path))
    opened.close()


def test_a_parent_stream_that_may_not_be_read(server: RestServer, tmp_path: Path) -> None:
    server.change("customers", status=403)
    opened = source(server, tmp_path, STREAMS)
    skipped = {each.name: each.skipped for each in opened.catalog()}
    opened.close()
    assert skipped["cards"] is not None
    assert skipped["cards"].startswith("the parent stream customers cannot be read: GET customers")


def test_no_parents_no_children(tmp_path: Path) -> None:
    with RestServer({"customers": {}}) as server:
        assert read(server, tmp_path) == []


def test_the_parents_time_range_counts(server: RestServer, tmp_path: Path) -> None:
    streams = STREAMS | {"customers": {"time": {"lag": 0}, "time_range": {"from": "2026-01-01T00:00:05"}}}
    first = server.objects("customers")[0][1]
    wanted = {id_ for id_, at in server.objects("customers") if at >= first + 5}
    rows = read(server, tmp_path, streams)
    assert rows
    assert each_once(rows, [row for row in Cards(server, tmp_path).rows() if row[0] in wanted])


def test_an_id_with_reserved_characters_and_a_parameter(tmp_path: Path) -> None:
    with RestServer({"customers": {"odd": {"0": {"id": "a/b c?d"}}}, "items": {}}) as server:
        server.arrive("customers", 1)
        server.arrive("items", 3)
        by_path = STREAMS | {"cards": CARDS | {"path": "list/{id}"}}
        server.make("list/a/b c?d", 2)
        assert each_once(read(server, tmp_path, by_path), [("a/b c?d", f"li_0000000{n}") for n in range(2)])
        by_parameter = STREAMS | {"cards": {"parent": "customers", "path": "items", "params": {"customer": "{id}"}}}
        assert len(read(server, tmp_path, by_parameter)) == 3
        assert server.requests("items")[-1]["query"]["customer"] == "a/b c?d"


@pytest.mark.parametrize(
    ("streams", "what"),
    [
        ({"cards": {"path": "customers/{id}/cards"}}, "no stream is named whose ids to put in"),
        ({"cards": {"parent": "customers", "path": "cards"}}, "neither `path` nor `params` has {id}"),
        ({"cards": CARDS | {"parent": "cards"}}, "`parent` is the stream itself"),
        ({"cards": CARDS | {"time": {}}}, "read whole in every run, and has `time`"),
        ({"cards": CARDS | {"incremental": True}}, "read whole in every run, and has `incremental`"),
        ({"cards": CARDS | {"parent_column": "id"}}, "column id, for the id of the parent, is also another column"),
        ({"cards": CARDS | {"parent_column": "json"}}, "column json, for the id of the parent, is also another"),
        ({"cards": CARDS | {"parent": "customer"}}, "no stream of the pipeline; did you mean 'customers'?"),
        (
            {"customers": CARDS | {"parent": "others"}, "others": {}},
            "the parent customers has a parent itself; only one level is read",
        ),
    ],
)
def test_what_is_refused(streams: dict[str, Any], what: str, server: RestServer, tmp_path: Path) -> None:
    assert what in fail(server, tmp_path, STREAMS | streams).what


def test_a_mark_of_another_parent_is_refused(server: RestServer, tmp_path: Path) -> None:
    opened = source(server, tmp_path, STREAMS)
    last = drain(opened, Cards(server, tmp_path))[-1].slice.position
    changed = StreamOptions(**(CARDS | {"parent_column": "customer"}))
    now = content_of("cards", changed, Options(base_url=f"{server.url}/v1")).content()
    with pytest.raises(StreamRefused, match="the mark was made with parent_column parent_id"):
        opened.accept("cards", last, now)
    opened.close()


def test_a_cursor_whose_object_is_deleted_does_not_stop_a_list_that_is_read_whole(tmp_path: Path) -> None:
    """From the beginning again, without what came before: in children as in any list without a filter."""
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 100)
        ids = [id_ for id_, _ in server.objects("charges")]
        removed = ids[-20]  # the last of the first page
        origin = List(server, tmp_path, paging={"size": 20})
        pages = 0

        opened = source(server, tmp_path, {"charges": {"paging": {"size": 20}}})

        def remove_once(stream: str, records: int, earliest: int) -> None:
            nonlocal pages
            pages += 1
            if pages == 1:
                server.remove("charges", removed)

        opened._at_page = remove_once  # type: ignore[method-assign]  # between two pages
        server.set_faults(latency=0.05)
        rows = [row for one in drain(opened, origin) for row in one.rows]
        opened.close()
        assert each_once(rows, ids)
