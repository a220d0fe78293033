"""Runs to look at: fixed messages, one second apart unless said otherwise, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.cli.display import pace
from penstock.cli.display.view import View
from penstock.core.fetches import FetchCounts
from penstock.core.messages import (
    Catalog,
    CatalogStream,
    ConnectionStatus,
    Eof,
    Message,
    MoverStatus,
    RowsRemaining,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
    WorkProgress,
)
from penstock.core.progress import fold

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NAMES = ("customers", "orders", "order_items", "products", "countries")


class Tape:
    """Messages as a run says them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.seconds = 0.0
        self._versions: dict[str, int] = {}

    def say(self, message: Message, after: float = 1.0) -> Tape:
        self.seconds += after
        self.messages.append(message.stamped(START + timedelta(seconds=self.seconds)))
        return self

    def catalog(self, *names: str) -> Tape:
        return self.say(Catalog(pipeline="shop", run="r", streams=tuple(CatalogStream(n, "rows") for n in names)), 0.4)

    def start(self, *names: str) -> Tape:
        for name in names:
            self.say(StreamStatus(stream=name, status=Status.START), 0.0)
        return self

    def left(self, name: str, rows: int | None, exact: bool = False, **more: str | int) -> Tape:
        return self.say(RowsRemaining(stream=name, rows=rows, exact=exact, **more), 0.1)  # type: ignore[arg-type]  # few

    def intend(self, name: str, rows: int | None = None) -> Tape:
        number = self._versions.get(name, 0) + 1
        return self.say(StepDone(stream=name, step="intend", number=number, rows=rows), 0.1)

    def moved(self, name: str, rows: int, after: float = 2.0) -> Tape:
        number = self._versions.get(name, 0) + 1
        return self.say(StepDone(stream=name, step="move", number=number, rows=rows, bytes=rows * 83), after)

    def done(self, name: str, rows: int, after: float = 2.0) -> Tape:
        """The slice at hand to its end."""
        self.moved(name, rows, after)
        number = self._versions[name] = self._versions.get(name, 0) + 1
        self.say(
            StateChanged(
                stream=name,
                version=number,
                number=number,
                slice_id="x",
                mark=f"{number * rows}",
                reason="advance",
                rows=rows,
                bytes=rows * 83,
            ),
            0.2,
        )
        return self.say(StreamStatus(stream=name, status=Status.RANGE_COMPLETE), 0.0)

    def slice(self, name: str, rows: int, after: float = 2.0) -> Tape:
        return self.intend(name, rows).done(name, rows, after)

    def fetch(self, name: str, fetched: FetchCounts, after: float = 1.0) -> Tape:
        return self.say(WorkProgress(stream=name, doing="fetching pages", done=1, fetched=fetched), after)

    def spark(self, after: float = 0.1, took: float | None = None) -> Tape:
        """Spark is being started; `took`: and is ready after that many seconds."""
        self.say(MoverStatus(program="Spark"), after)
        return self if took is None else self.say(MoverStatus(program="Spark", ready=True), took)

    def complete(self, *names: str) -> Tape:
        for name in names:
            self.say(StreamStatus(stream=name, status=Status.COMPLETE), 0.0)
        return self

    def failed(self, name: str, reason: str, next_step: str) -> Tape:
        return self.say(StreamStatus(stream=name, status=Status.ERROR, reason=reason, next_step=next_step), 0.3)

    def eof(self, status: str = "complete", code: int = 0, **more: str | bool) -> Tape:
        has_more = bool(more.pop("has_more", status != "complete"))
        return self.say(Eof(status=status, exit_code=code, has_more=has_more, **more), 0.3)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scene:
    """A moment of a run."""

    messages: Sequence[Message]
    #: seconds since its start
    at: float

    def view(self, *, stopping: bool = False) -> View:
        return View(
            "shop",
            fold(self.messages),
            START + timedelta(seconds=self.at),
            pace.fold(self.messages),
            describe_mark=lambda mark: (
                "the beginning" if mark is None else f"up to updated_at 2026-11-15 11:58:03+00, id {mark}"
            ),
            begun=START,
            stopping=stopping,
        )


def _scene(tape: Tape, later: float = 0.5) -> Scene:
    return Scene(tape.messages, tape.seconds + later)


def connecting() -> Scene:
    return _scene(Tape(), 0.7)


def starting() -> Scene:
    tape = Tape().catalog(*NAMES).start(*NAMES).left("customers", 2000).intend("customers", 2000)
    return _scene(tape.spark(), 23.0)


def busy(tape: Tape | None = None) -> Scene:
    tape = (tape or Tape()).catalog(*NAMES).start(*NAMES).left("customers", 2000).slice("customers", 2000, after=7.5)
    tape.complete("countries")
    tape.left("orders", 1_900_000).slice("orders", 400_000, after=4.1)
    tape.left("order_items", 5_000_000).slice("order_items", 350_000, after=5.0)
    tape.complete("customers")
    tape.left("orders", 1_500_000).slice("orders", 412_345, after=3.9)
    return _scene(tape.left("order_items", 4_650_000).intend("order_items", 360_000), 1.4)


def done() -> Scene:
    tape = Tape()
    busy(tape)
    tape.done("order_items", 360_000).left("orders", 1_087_655).slice("orders", 1_087_655).complete("orders")
    tape.slice("order_items", 4_290_000).complete("order_items").intend("products", 300).done("products", 300)
    return _scene(tape.complete("products").eof())


def one_failed() -> Scene:
    tape = Tape()
    busy(tape)
    tape.failed(
        "products",
        'the column "price" of table public.products holds a value that does not fit numeric(10, 2): '
        "12345678901.5 in the row with sku 'sku-17'",
        "correct the row, or widen the column in the sink: penstock run shop.yaml --stream products",
    )
    return _scene(tape, 0.2)


def failed_to_the_end() -> Scene:
    tape = Tape()
    one_failed_scene = one_failed()
    tape.messages += one_failed_scene.messages
    tape.seconds = one_failed_scene.at
    tape._versions = {"orders": 2, "order_items": 1, "customers": 1}
    tape.done("order_items", 360_000).slice("orders", 1_087_655).complete("orders", "order_items")
    return _scene(tape.eof("failed", 1, reason="failed: products"))


def connection_failed() -> Scene:
    tape = Tape()
    tape.say(
        ConnectionStatus(
            side="source",
            connected=False,
            reason="cannot connect to db.internal:5432, database shop, as ann: connection refused",
            next_step="see that the server runs and that host and port in `url` are right",
        ),
        1.2,
    )
    return _scene(tape)


def limited() -> Scene:
    tape = Tape()
    busy(tape)
    tape.done("order_items", 360_000)
    return _scene(tape.eof("limited", 0, reason="stopped at --max-rows 1,500,000", has_more=True))


def held_back() -> Scene:
    tape = Tape().catalog(*NAMES).start(*NAMES)
    tape.left(
        "orders",
        38_000,
        held_back=312,
        blocker="pid 4711 (ann, open for 12 min, idle in transaction): UPDATE orders SET status = 'paid' WHERE id = 17",
    )
    tape.slice("orders", 38_000).left("customers", 12, exact=True).slice("customers", 12, after=0.2)
    return _scene(tape.complete("customers").intend("order_items"), 3.2)


def held_back_to_the_end() -> Scene:
    """One stream has read what it may, another may read nothing yet, the third has nothing new."""
    tape = Tape().catalog(*NAMES).start(*NAMES)
    blocker = "process 4711 (user ann, billing), idle in a transaction for 12 min, last with UPDATE orders SET …"
    tape.left("orders", 38_000, held_back=312, blocker=blocker).slice("orders", 38_000)
    tape.left("orders", 0, held_back=312, blocker=blocker).complete("orders")
    tape.left("order_items", 0, held_back=1, blocker="the prepared transaction 'x' (owner ann), waiting for 9 s")
    tape.complete(*(name for name in NAMES if name != "orders"))
    return _scene(tape.eof("complete"))


def many() -> Scene:
    names = [f"table_{n:03}" for n in range(200)]
    tape = Tape().catalog(*names).start(*names)
    for n, name in enumerate(names[:60]):
        tape.left(name, 900 + n).slice(name, 900 + n, after=0.05)
        if n % 2:
            tape.complete(name)
    tape.complete(*names[60:70])
    tape.failed(names[70], "there is no table public.table_070", "create it, or take it out of the file")
    return _scene(tape.left(names[71], 120_000, exact=True).intend(names[71], 40_000), 1.0)


def fetching(tape: Tape | None = None) -> Scene:
    """One stream is fetched by several workers, another has moved its first slice, the third is not read by time."""
    tape = (tape or Tape()).catalog("charges", "refunds", "plans").start("charges", "refunds", "plans")
    begin, end = "2024-01-01T00:00:00Z", "2026-11-15T12:00:00Z"
    done = ((0.0, 0.24), (0.5, 0.62), (0.95, 1.0))
    tape.fetch("refunds", FetchCounts(2000, 20, 21, 0, 0.0, 2.0, begin, end, ((0.4, 1.0),))).slice("refunds", 2000)
    tape.fetch("plans", FetchCounts(40, 1, 1, 0, 0.0, 0.5))
    return _scene(tape.fetch("charges", FetchCounts(118_300, 1183, 1207, 3, 12.3, 61.0, begin, end, done)))


def fetched_to_the_end() -> Scene:
    tape = Tape()
    fetching(tape)
    tape.slice("charges", 118_300).slice("plans", 40).complete("charges", "refunds", "plans")
    return _scene(tape.eof())


def skipped_and_failed() -> Scene:
    """An API forbids one list and fails on another; the third is complete."""
    tape = Tape()
    streams = (
        CatalogStream("charges", "rows"),
        CatalogStream("refunds", "rows", skipped="GET refunds?limit=1: status 403 (No permission), request id req_7"),
        CatalogStream("disputes", "rows"),
    )
    tape.say(Catalog(pipeline="shop", run="r", streams=streams), 0.4).start("charges", "disputes")
    tape.failed(
        "disputes",
        "GET disputes?limit=1: status 500 (Something went wrong), request id req_31, and 6 retries did not help",
        "run again once the server answers",
    )
    tape.slice("charges", 118_300).complete("charges")
    return _scene(tape.eof("failed", 1, reason="failed: disputes"))


SCENES: dict[str, Callable[[], Scene]] = {
    scene.__name__: scene
    for scene in (
        connecting,
        starting,
        busy,
        done,
        one_failed,
        failed_to_the_end,
        connection_failed,
        limited,
        held_back,
        held_back_to_the_end,
        many,
        fetching,
        fetched_to_the_end,
        skipped_and_failed,
    )
}
