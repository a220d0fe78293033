"""Everything that can go wrong, each with what is safe and what to do next.

    PenstockError
    ├── InputError            2    something the user wrote cannot be run as it stands
    │   ├── ConfigError       2    the pipeline file: every mistake with its line
    │   ├── StreamRefused     2    one stream's table, columns or options; the other streams go on
    │   └── StoreRefused      2    a store that is unreadable, foreign or newer
    ├── ConnectionFailed      3    a server cannot be reached, or does not let us in
    ├── PipelineHeld          4    another process holds the pipeline
    ├── LeaseLost             4    another process took the pipeline over while we were away
    ├── StreamFailed          1    one stream could not be moved; its slice stays open, the others go on
    │   ├── StreamStopped     1    sink and store disagree: nothing moves until an operator decides
    │   └── SliceRefused      1    what was put aside does not add up; nothing of it is visible
    ├── CommitUnclear         -    a commit lost a race, or its answer was lost: ask the sink, decide by the chain
    └── Interrupted     130/143    stopped by a signal

The number is the exit code of a run that ends with the error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

NOTHING_LOST = "Nothing was lost: the mark has not moved."
UNTOUCHED = "Nothing was read or written."
#: the last words of a command that a second SIGINT has ended
ENDED_AT_ONCE = b"ended at once; run the same command again, it resumes where it stood\n"


#: verbs that are about all pipelines of a file
_FILE_VERBS = ("status", "warm")
#: verbs that take a pipeline as an argument; every other verb has `--pipeline`
_LIST_VERBS = ("run", "check", "plan", "discover", "upkeep", "quarantine list")
_COMMAND = re.compile(r"penstock ((?:state |quarantine )?[a-z]+) FILE(?! --pipeline)")


def filled(next_step: str, file: str, pipeline: str | None = None, stream: str | None = None) -> str:
    """A next step whose commands can be pasted: the path of the pipeline file where it says FILE, names quoted.

    `pipeline` is given where the file has several; `stream` is the stream that the step is about.
    """
    path = shlex.quote(file)

    def command(found: re.Match[str]) -> str:
        verb = found[1]
        if pipeline is None or verb in _FILE_VERBS:
            return f"penstock {verb} {path}"
        option = "" if verb in _LIST_VERBS else "--pipeline "
        return f"penstock {verb} {path} {option}{shlex.quote(pipeline)}"

    text = _COMMAND.sub(command, next_step)
    if stream is not None and shlex.quote(stream) != stream:
        text = text.replace(f"--stream {stream}", f"--stream {shlex.quote(stream)}")
    return re.sub(r"\bFILE\b", lambda _: path, text)


class PenstockError(Exception):
    """What happened, what is safe, and the next step."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        next_step: str,
        safe: str = NOTHING_LOST,
        pipeline: str | None = None,
        stream: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.safe = safe
        self.pipeline = pipeline
        self.stream = stream

    def __str__(self) -> str:
        where = "/".join(name for name in (self.pipeline, self.stream) if name)
        head = f"{where}: {self.what}" if where else self.what
        return "\n".join(line for line in (head, self.safe, f"Next: {self.next_step}") if line)

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers send errors back pickled, and an exception is rebuilt from its positional arguments alone.
        return _rebuilt, (type(self), self.args, self.__dict__)

    def at(self, *, pipeline: str | None = None, stream: str | None = None) -> PenstockError:
        """The same error, now knowing where it happened."""
        self.pipeline = self.pipeline or pipeline
        self.stream = self.stream or stream
        return self


def _rebuilt(kind: type[PenstockError], args: tuple[Any, ...], state: dict[str, Any]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(PenstockError):
    exit_code = 2


class ConfigError(InputError):
    """All mistakes of one pipeline file at once."""


class StreamRefused(InputError):
    """A stream that cannot be read or written safely as it is configured."""

    #: what else stands against the same stream
    others: tuple[StreamRefused, ...] = ()


class StoreRefused(InputError):
    """A store that must not be taken for an empty one."""


class ConnectionFailed(PenstockError):
    exit_code = 3


class PipelineHeld(PenstockError):
    exit_code = 4


class LeaseLost(PenstockError):
    exit_code = 4


class StreamFailed(PenstockError):
    exit_code = 1


class StreamStopped(StreamFailed):
    """Sink and store disagree about which slice came last."""


class SliceRefused(StreamFailed):
    """Receipts that do not add up."""


class CommitUnclear(PenstockError):
    """The outcome of a commit is not known here; only the sink can tell."""


class Interrupted(PenstockError):
    """A signal asked us to stop, and we did."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(
            f"stopped by signal {signal_number}",
            next_step="run the same command again; it resumes where it stood",
        )
        self.signal_number = signal_number

    @property
    def code(self) -> int:
        """The exit code a shell gives to a process ended by this signal."""
        return 128 + self.signal_number


def refuse_all(problems: Iterable[StreamRefused]) -> None:
    """Raise the first of some problems, which carries the others; nothing if there are none."""
    found = list(problems)
    if found:
        found[0].others = tuple(found[1:])
        raise found[0]


def problems_of(rules: Iterable[Callable[[], object]]) -> Iterator[StreamRefused]:
    """What each of some rules refuses; rules that do not rest on each other."""
    for rule in rules:
        try:
            rule()
        except StreamRefused as refused:
            yield refused
            yield from refused.others
