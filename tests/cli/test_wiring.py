"""What a pipeline's source, sink and engine share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.doubles import LoopMover
from tests.store.memory_store import MemoryStore

from penstock import sinks, sources, wiring
from penstock.engine import Engine
from penstock.errors import ConnectionFailed, Interrupted, StreamFailed
from penstock.links.spark import SparkSessionProvider, shared
from penstock.ports import Context, Mover

FILE = """
spark: {master: "local[3,3]", config: {spark.sql.session.timeZone: UTC}}
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://nowhere/shop"}
    sink: {type: files, directory: out}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


class Session:
    """A session that starts no JVM."""

    def __init__(self) -> None:
        self.stopped = 0
        # Spark is stopped through the Java object of its context.
        self.sparkContext = self._jsc = self

    def stop(self) -> None:
        self.stopped += 1


class Absent:
    """A source or sink that nobody can reach."""

    def connect(self) -> None:
        raise ConnectionFailed("nobody is there", next_step="")

    def close(self) -> None:
        pass


class Assembled:
    """A pipeline whose source and sink only keep what they are built with."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        (folder / "shop.yaml").write_text(FILE)
        self.file = wiring.load(str(folder / "shop.yaml"))
        self.contexts: list[Context] = []
        self.movers: list[LoopMover] = []
        self.providers: list[SparkSessionProvider] = []
        self.session = Session()
        patch.setattr(sources, "load", lambda _: SimpleNamespace(build=self.build))
        patch.setattr(sinks, "load", lambda _: SimpleNamespace(build=self.build))
        patch.setattr(wiring, "make_mover", self.make_mover)
        patch.setattr(shared, "start", lambda *_: self.session)

    def build(self, _options: Any, _streams: Mapping[str, Any], context: Context) -> object:
        self.contexts.append(context)
        return Absent()

    def make_mover(self, spark: SparkSessionProvider) -> Mover:
        self.providers.append(spark)
        self.movers.append(LoopMover())
        return self.movers[-1]

    def engine(self) -> Engine:
        return wiring.assemble(self.file, "shop", store=MemoryStore(), emit=lambda _: None)


@pytest.fixture
def assembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assembled:
    return Assembled(tmp_path, monkeypatch)


def test_source_sink_and_engine_share_one_spark_and_one_mover(assembled: Assembled) -> None:
    engine = assembled.engine()
    source, sink = assembled.contexts
    assert source.spark is sink.spark
    assert isinstance(source.spark, SparkSessionProvider)
    assert source.spark.options.config == {"spark.sql.session.timeZone": "UTC"}
    assert source.mover() is sink.mover() is engine.mover()
    assert engine.settings.workers() == engine.mover().workers == 3
    assert assembled.movers == [], "nothing has been moved"
    source.mover().move(None, None, [])  # type: ignore[arg-type]  # there is nothing to move
    sink.mover().move(None, None, [])  # type: ignore[arg-type]
    assert assembled.providers == [source.spark]


@pytest.mark.parametrize("use", [lambda context: context.spark.session(), lambda context: context.mover()])
def test_what_a_sink_began_is_given_up_with_the_run(assembled: Assembled, use: Callable[[Context], object]) -> None:
    """Though the engine itself has moved nothing yet."""
    engine = assembled.engine()
    _, sink = assembled.contexts
    assert isinstance(sink.spark, SparkSessionProvider)
    use(sink)
    engine.stop(15)
    with pytest.raises(StreamFailed, match="cancelled"):
        sink.spark.wait(lambda: None)


def test_a_run_that_is_to_end_starts_no_spark(assembled: Assembled) -> None:
    engine = assembled.engine()
    engine.stop(15)
    with pytest.raises(Interrupted):
        assembled.contexts[0].spark.session()


def test_what_a_sink_began_is_ended_with_the_run(assembled: Assembled) -> None:
    engine = assembled.engine()
    assembled.contexts[1].spark.session()
    engine.run()  # which fails: nobody is there to connect to
    assert assembled.session.stopped == 1


def test_without_an_engine_both_are_ended_by_whoever_asked_for_them(assembled: Assembled) -> None:
    hands = wiring.runtime_for(assembled.file)
    context = wiring.context_for(assembled.file, "shop", runtime=hands)
    wiring.build_sink(assembled.file, "shop", context)
    assert assembled.contexts == [context]
    assert context.mover() is hands
    context.mover().move(None, None, [])  # type: ignore[arg-type]  # there is nothing to move
    assert context.spark.session() is assembled.session
    hands.cancel()
    assert assembled.movers[0].cancelled
    hands.close()
    other = wiring.runtime_for(assembled.file)
    other.spark.session()
    other.close()
    assert assembled.session.stopped == 1, "one that was given up is not asked to stop"


def test_one_who_only_looks_gets_spark_too_and_starts_none(assembled: Assembled) -> None:
    wiring.build_source(assembled.file, "shop")
    (context,) = assembled.contexts
    assert isinstance(context.spark, SparkSessionProvider)
    assert assembled.providers == []
