"""State: the mark of every stream, as a fold over messages.

Each change of a mark has a version. The fold keeps the highest, so messages may come twice, late or in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.messages import Message, MessageRefused, StateChanged


@dataclass(frozen=True, slots=True)
class StreamMark:
    """One stream's mark, as the newest message has it."""

    version: int
    number: int
    slice_id: str
    mark: str | None


@dataclass(frozen=True, slots=True)
class State:
    """Every stream's mark."""

    streams: Mapping[str, StreamMark] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "streams": [
                {"stream": name, "version": s.version, "number": s.number, "slice_id": s.slice_id, "mark": s.mark}
                for name, s in sorted(self.streams.items())
            ]
        }


def apply(state: State, message: Message) -> State:
    """The state after a message. A version that is not higher changes nothing."""
    if message.ts is None:
        raise MessageRefused(f"a {message.type} message without _ts")
    if not isinstance(message, StateChanged):
        return state
    known = state.streams.get(message.stream)
    if known is not None and message.version <= known.version:
        return state
    mark = StreamMark(message.version, message.number, message.slice_id, message.mark)
    return State({**state.streams, message.stream: mark})


def fold(messages: Iterable[Message], state: State | None = None) -> State:
    state = state or State()
    for message in messages:
        state = apply(state, message)
    return state
