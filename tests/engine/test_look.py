"""Looking at a stream: one function for run, check, plan and read, and how often a run asks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.look import Look
from penstock.errors import StreamRefused, StreamStopped
from penstock.ports import Budget, Held, NoProbe, StreamState
from penstock.sinks.files import FilesSink
from tests.engine.pipeline import PIPELINE, Pipeline, broken_off, rows
from tests.harness.doubles import MemorySource

LOOK = Budget(1, rows=1, look=True)


class CountingSink(FilesSink):
    """Counts how often it is asked what it holds."""

    asked: Counter[str]

    def held(self, stream: str) -> Held | None:
        self.asked[stream] += 1
        return super().held(stream)


class CountingSource(MemorySource):
    """Counts plans: those that only look, and those whose bounds are used."""

    planned: Counter[str]

    def plan(self, stream: str, content: Any, after: Any, ceiling: Any, budget: Budget) -> Any:
        found = super().plan(stream, content, after, ceiling, budget)
        self.planned["looks" if budget.look else "plans" if found else "nothing left"] += 1
        return found


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(str(tmp_path), {"a": rows(2)})
    pipeline.source = CountingSource(pipeline.rows)
    pipeline.source.planned = Counter()
    return pipeline


def counted_run(pipeline: Pipeline) -> tuple[int, Counter[str]]:
    """Run once; how often the sink was asked, and what was planned."""
    source: Any = pipeline.source
    source.planned.clear()
    sink = pipeline.sink(NoProbe())
    sink.__class__ = CountingSink
    assert isinstance(sink, CountingSink)
    sink.asked = Counter()
    assert pipeline.open(sink=sink).run().exit_code == 0
    return sink.asked["a"], source.planned


@pytest.mark.parametrize("slices", [1, 5])
def test_a_run_asks_the_sink_twice_and_plans_each_slice_once(pipeline: Pipeline, slices: int) -> None:
    for key in range(2 * (slices - 1)):
        pipeline.rows["a"].arrive(key)
    asked, planned = counted_run(pipeline)
    assert pipeline.delivered() == list(range(1, 2 * slices + 1))
    assert asked == 2, "once without the lease, once under it"
    assert planned == {"looks": 1, "plans": slices, "nothing left": 1}


def test_a_run_with_nothing_new_asks_once_and_plans_nothing(pipeline: Pipeline) -> None:
    counted_run(pipeline)
    assert counted_run(pipeline) == (1, {"looks": 1})


def test_a_slice_that_was_open_is_asked_for(pipeline: Pipeline) -> None:
    """Once without the lease, once for the open slice; the comparison after it is spared."""
    counted_run(pipeline)
    pipeline.rows["a"].arrive(9)
    broken_off(pipeline)
    assert pipeline.state().intent is not None
    asked, _ = counted_run(pipeline)
    assert asked == 2
    assert pipeline.delivered() == [1, 2, 3]


def look_at(pipeline: Pipeline, **options: Any) -> Look:
    (info,) = pipeline.source.catalog()
    sink = pipeline.sink()
    sink.connect()
    return Look(PIPELINE, info, pipeline.source, sink, "look", **options)


def test_the_first_error_is_raised_and_all_are_collected(pipeline: Pipeline) -> None:
    counted_run(pipeline)
    pipeline.rows["a"].arrive(9)
    pipeline.source.identity = "elsewhere"
    state = pipeline.state()
    with pytest.raises(StreamRefused, match="another source"):
        look_at(pipeline).look(state, LOOK)
    behind = StreamState()
    with pytest.raises(StreamStopped, match="the store knows nothing of this stream"):
        look_at(pipeline).look(behind, LOOK)
    problems: list[Any] = []
    ahead = StreamState(state.last and type(state.last)(7, "other", state.last.mark, state.last.content))
    assert look_at(pipeline).look(ahead, LOOK, problems) is None
    assert [type(each) for each in problems] == [StreamStopped, StreamRefused]
    assert [(each.pipeline, each.stream) for each in problems] == [(PIPELINE, "a")] * 2


def test_a_look_needs_no_sink(pipeline: Pipeline) -> None:
    (info,) = pipeline.source.catalog()
    look = Look(PIPELINE, info, pipeline.source, None, "read")
    assert look.look(StreamState(), LOOK) is not None
    assert look.held is None
