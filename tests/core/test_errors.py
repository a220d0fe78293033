"""Every error has its exit code, says where, what, what is safe and what to do, and survives the way from a worker."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from penstock import errors
from penstock.errors import NOTHING_LOST, Interrupted, PenstockError, StreamFailed, StreamStopped

DRAWN = re.compile(r"^[\s│├└─]*(\w+) +([\d/-]+) ")


def classes(of: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    inside = [each for each in of.__subclasses__() if each.__module__ == errors.__name__]
    return [each for direct in inside for each in (direct, *classes(direct))]


PLAIN = [kind for kind in classes() if kind is not Interrupted]


def make(kind: type[PenstockError]) -> PenstockError:
    return kind("it broke", next_step="mend it", safe="all safe", pipeline="shop", stream="orders")


def test_the_drawing_shows_every_class_with_its_exit_code() -> None:
    assert errors.__doc__
    drawn = {found[1]: found[2] for line in errors.__doc__.splitlines() if (found := DRAWN.match(line))}
    assert set(drawn) == {kind.__name__ for kind in classes()}
    for kind in classes():
        if drawn[kind.__name__].isdigit():
            assert kind.exit_code == int(drawn[kind.__name__]), kind
    assert drawn["CommitUnclear"] == "-"
    assert drawn["Interrupted"] == "130/143"
    assert [Interrupted(number).code for number in (2, 15)] == [130, 143]


def test_the_drawing_shows_who_inherits_from_whom() -> None:
    assert errors.__doc__
    parents: list[str] = []
    for line in errors.__doc__.splitlines():
        if found := re.match(r"^    ([\s│├└─]*)(\w+)(?:  |$)", line):
            depth = len(found[1]) // 4
            parents[depth:] = [found[2]]
            kind = getattr(errors, found[2])
            assert kind.__bases__[0].__name__ == (parents[depth - 1] if depth else "Exception")


@pytest.mark.parametrize("kind", PLAIN)
def test_the_text_says_where_what_safe_and_next(kind: type[PenstockError]) -> None:
    assert str(make(kind)) == "shop/orders: it broke\nall safe\nNext: mend it"


def test_what_is_not_known_is_left_out() -> None:
    error = PenstockError("it broke", next_step="mend it")
    assert str(error) == f"it broke\n{NOTHING_LOST}\nNext: mend it"
    assert str(error.at(stream="orders")).startswith("orders: it broke")
    assert str(PenstockError("it broke", next_step="mend it", safe="")) == "it broke\nNext: mend it"


def test_where_it_happened_is_told_once() -> None:
    error = StreamFailed("it broke", next_step="mend it", stream="orders")
    assert error.at(pipeline="shop", stream="other") is error
    assert (error.pipeline, error.stream) == ("shop", "orders")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_survives_the_way_from_a_worker(kind: type[PenstockError], protocol: int) -> None:
    error = make(kind)
    there = pickle.loads(pickle.dumps(error, protocol))
    assert type(there) is kind
    assert vars(there) == vars(error)
    assert str(there) == str(error)
    assert there.args == error.args
    assert there.exit_code == error.exit_code


def test_a_signal_survives_it_too() -> None:
    for there in (pickle.loads(pickle.dumps(Interrupted(15))), copy.copy(Interrupted(15))):
        assert isinstance(there, Interrupted)
        assert (there.signal_number, there.code) == (15, 143)
        assert str(there) == str(Interrupted(15))


def test_a_class_of_a_connector_survives_it() -> None:
    error = pickle.loads(pickle.dumps(Strange(7)))
    assert isinstance(error, Strange)
    assert error.number == 7


class Strange(StreamStopped):
    """What a third party might add: a constructor of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(f"strange {number}", next_step="ask")
        self.number = number
