"""The error hierarchy. Each error says what happened, what is safe and what to do next.

    PenstockError
    ├── InputError            2    invalid input from the user
    │   ├── ConfigError       2    mistakes in the pipeline file, each with its line
    │   ├── StreamRefused     2    one stream's table, columns or options; the other streams continue
    │   │   ├── NotComparable 2    source and sink of a stream cannot be compared
    │   │   └── NotOffered    2    the account may not read the stream: skipped, unless it was delivered before
    │   └── StoreRefused      2    a store that is unreadable, not penstock's, or of a newer version
    ├── ConnectionFailed      3    a server cannot be reached, or refuses the login
    ├── PipelineHeld          4    another process is running the pipeline
    ├── LeaseLost             4    another process took over the pipeline
    ├── StreamFailed          1    one stream failed; its slice stays open, the other streams continue
    │   ├── StreamStopped     1    sink and store disagree: the stream stops until an operator decides
    │   ├── SliceRefused      1    the staged parts do not match their receipts; no row is visible
    │   └── OutOfTime         -    the run's time is over before a slice was read: the next run begins it again
    ├── CommitUnclear         -    a commit lost a race, or its answer was lost: ask the sink and compare slices
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
#: printed when a second SIGINT ends the command
STOPPED_IMMEDIATELY = b"stopped immediately; run the same command again to resume\n"


#: verbs that take no pipeline
_FILE_VERBS = ("status", "warm", "serve")
#: verbs that take pipelines as arguments; all others have `--pipeline`
_LIST_VERBS = ("run", "check", "plan", "discover", "upkeep", "verify", "quarantine list")
_COMMAND = re.compile(r"penstock ((?:state |quarantine |triggers )?[a-z]+) FILE(?! --pipeline)")


def filled(next_step: str, file: str, pipeline: str | None = None, stream: str | None = None) -> str:
    """Complete the commands in a next step so that they can be pasted: replace FILE by the path, and quote names.

    Pass `pipeline` if the file has several; `stream` is the stream that the step is about.
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
        # Workers send errors back pickled, and by default an exception is rebuilt from its arguments alone.
        return _rebuild, (type(self), self.args, self.__dict__)

    def at(self, *, pipeline: str | None = None, stream: str | None = None) -> PenstockError:
        """Add the pipeline and stream in which the error happened."""
        self.pipeline = self.pipeline or pipeline
        self.stream = self.stream or stream
        return self


def _rebuild(kind: type[PenstockError], args: tuple[Any, ...], state: dict[str, Any]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(PenstockError):
    exit_code = 2


class ConfigError(InputError):
    """All mistakes of one pipeline file."""


class StreamRefused(InputError):
    """A stream that cannot be read or written safely with its configuration."""

    #: further problems of the same stream
    others: tuple[StreamRefused, ...] = ()

    def at(self, *, pipeline: str | None = None, stream: str | None = None) -> PenstockError:
        for other in self.others:
            other.at(pipeline=pipeline, stream=stream)
        return super().at(pipeline=pipeline, stream=stream)


class NotComparable(StreamRefused):
    """A stream whose source and sink cannot be compared."""


class NotOffered(StreamRefused):
    """A stream that the source does not have for this account: it is skipped, unless it was delivered before."""


class StoreRefused(InputError):
    """A store that cannot be used, and must not be treated as empty."""


class ConnectionFailed(PenstockError):
    exit_code = 3


class PipelineHeld(PenstockError):
    exit_code = 4


class LeaseLost(PenstockError):
    exit_code = 4


class StreamFailed(PenstockError):
    exit_code = 1


class StreamStopped(StreamFailed):
    """Sink and store disagree about the last slice."""


class SliceRefused(StreamFailed):
    """Staged parts that do not match their receipts."""


class OutOfTime(StreamFailed):
    """The run's time was over before what cannot be delivered in part was read. The run ends as at any limit."""


class CommitUnclear(PenstockError):
    """A commit whose outcome is unknown; only the sink knows it."""


class Interrupted(PenstockError):
    """The process was stopped by a signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(
            f"stopped by signal {signal_number}",
            next_step="run the same command again to resume",
        )
        self.signal_number = signal_number

    @property
    def code(self) -> int:
        """The exit code of a process that this signal has ended, as in a shell."""
        return 128 + self.signal_number


def refuse_all(problems: Iterable[StreamRefused]) -> None:
    """Raise the first problem with the others attached; return if there are none."""
    raised = list(problems)
    if raised:
        raised[0].others = tuple(raised[1:])
        raise raised[0]


def problems_of(checks: Iterable[Callable[[], object]]) -> Iterator[StreamRefused]:
    """Run independent checks and yield every problem."""
    for check in checks:
        try:
            check()
        except StreamRefused as refused:
            yield refused
            yield from refused.others
