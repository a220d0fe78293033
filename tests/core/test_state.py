"""The state fold: crashes, replays and reorderings change nothing, and a mark never moves back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from tests.core.strategies import given, messages, state_changes

from penstock.core.messages import Message, MessageRefused, StateChanged
from penstock.core.state import State, apply, fold

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def change(stream: str, version: int) -> StateChanged:
    """What the store's history holds at a version: one thing, whoever says it."""
    return StateChanged(
        ts=NOON + timedelta(seconds=version),
        stream=stream,
        version=version,
        number=version,
        slice_id=f"{stream}-{version}",
        mark=f'{{"at":{version}}}' if version % 5 else None,
        reason="advance" if version % 5 else "reset",
        rows=version,
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """What one pipeline said from its beginning on."""
    ends = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 8), min_size=1))
    turns = [stream for stream, end in ends.items() for _ in range(end)]
    versions = dict.fromkeys(ends, 0)
    said: list[Message] = []
    for stream in draw(st.permutations(turns)):
        versions[stream] += 1
        said.append(change(stream, versions[stream]))
    return said


@given(histories(), st.data())
def test_any_order_of_crash_and_replay_gives_the_same_state(history: list[Message], data: st.DataObject) -> None:
    whole = fold(history)
    heard: list[Message] = []
    # Each crash ends what is heard somewhere; the next process tells again from somewhere before.
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(history)))
        heard += history[begin : data.draw(st.integers(begin, len(history)))]
    heard += history
    assert fold(heard) == whole
    assert fold(data.draw(st.permutations(heard))) == whole
    assert fold(heard, whole) == whole


@given(histories(), st.integers(0, 24))
def test_a_prefix_and_the_rest_are_the_whole(history: list[Message], cut: int) -> None:
    assert fold(history[cut:], fold(history[:cut])) == fold(history)


@given(st.lists(state_changes, max_size=12), state_changes)
def test_a_mark_never_moves_back(before: list[Message], message: StateChanged) -> None:
    state = fold(before)
    after = apply(state, message)
    known = state.streams.get(message.stream)
    for stream, standing in state.streams.items():
        assert after.streams[stream].version >= standing.version
    if known and message.version <= known.version:
        assert after == state
    else:
        standing = after.streams[message.stream]
        assert (standing.version, standing.number, standing.slice_id, standing.mark) == (
            message.version,
            message.number,
            message.slice_id,
            message.mark,
        )


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_version_that_is_not_higher_changes_nothing(version: int, less: int) -> None:
    state = fold([change("s", version)])
    other = StateChanged(
        ts=NOON, stream="s", version=max(0, version - less), number=99, slice_id="other", mark=None, reason="advance"
    )
    assert apply(state, other) is state


@given(messages)
def test_only_a_change_of_a_mark_changes_the_state(message: Message) -> None:
    state = fold([change("before", 3)])
    if not isinstance(message, StateChanged):
        assert apply(state, message) is state


@given(messages)
def test_a_message_without_ts_is_refused(message: Message) -> None:
    timeless = type(message)(**vars(message) | {"ts": None})
    with pytest.raises(MessageRefused, match=f"a {message.type} message without _ts"):
        apply(State(), timeless)


@given(messages)
def test_the_state_given_is_not_changed(message: Message) -> None:
    state = fold([change("s", 1)])
    before = state.document()
    apply(state, message)
    assert state.document() == before


def test_the_document() -> None:
    assert fold([change("b", 5), change("a", 2)]).document() == {
        "streams": [
            {"stream": "a", "version": 2, "number": 2, "slice_id": "a-2", "mark": '{"at":2}'},
            {"stream": "b", "version": 5, "number": 5, "slice_id": "b-5", "mark": None},
        ]
    }
