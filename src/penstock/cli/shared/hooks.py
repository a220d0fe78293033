"""`on_failure` and `on_success`: commands that are run after a run has ended. They change nothing of the run itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from penstock.cli.shared.report import reported, say
from penstock.core.messages import ConnectionStatus, Eof, Message, Status, StreamStatus
from penstock.errors import PenstockError, filled

if TYPE_CHECKING:
    from penstock.config import File

#: seconds that a command may take
HOOK_SECONDS = 60.0
#: seconds between two looks at it
_LOOK_SECONDS = 0.05
#: characters of one variable; the system refuses an environment that is too large
_LONGEST = 8000
#: exit codes of a failed run: not one that another process holds (4), nor one that a signal has ended
FAILED = (1, 2, 3)


@dataclass
class Outcome:
    """How a pipeline's run ended, put together from its messages."""

    status: str = "failed"
    exit_code: int = 1
    rows: int = 0
    errors: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, error: PenstockError) -> Outcome:
        """The end of a run that did not begin."""
        return cls(exit_code=error.exit_code, errors=[error.what], next_steps=[error.next_step])

    @contextlib.contextmanager
    def kept(self, file: str, *, as_json: bool) -> Iterator[None]:
        """Report an error that escapes from a pipeline's run, and keep it: the other pipelines are run all the same."""
        try:
            with reported(file, as_json=as_json):
                try:
                    yield
                except typer.Exit:
                    raise
                except Exception as error:
                    step = error.next_step if isinstance(error, PenstockError) else None
                    self.fail(
                        error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}", step
                    )
                    raise
        except typer.Exit as ended:
            self.exit_code = ended.exit_code

    def hear(self, message: Message) -> None:
        """Take what a message says of the end."""
        if isinstance(message, StreamStatus) and message.status is Status.ERROR:
            self.fail(f"{message.stream}: {message.reason}", message.next_step)
        elif isinstance(message, ConnectionStatus) and not message.connected:
            self.fail(message.reason or "no connection", message.next_step)
        elif isinstance(message, Eof):
            self.status, self.exit_code = message.status, message.exit_code
            self.rows = message.request_progress.get("rows", 0)
            if message.exit_code and not self.errors:
                self.fail(message.reason or message.status, message.next_step)

    def fail(self, error: str, next_step: str | None) -> None:
        self.errors.append(error)
        if next_step:
            self.next_steps.append(next_step)


class Hooks:
    """Runs the commands of one file's pipelines."""

    def __init__(self, file: File, environment: Mapping[str, str], stopping: Callable[[], bool]) -> None:
        """`stopping` says whether a signal has come: then no command is waited for."""
        self._file = file
        self._environment = environment
        self._stopping = stopping

    def call(self, pipeline: str, outcome: Outcome) -> None:
        """Run the command for this end, if there is one; what goes wrong with it is said and nothing else."""
        chosen = self._file.pipelines[pipeline]
        if outcome.exit_code == 0:
            key, command = "on_success", chosen.on_success or self._file.on_success
        elif outcome.exit_code in FAILED:
            key, command = "on_failure", chosen.on_failure or self._file.on_failure
        else:
            return
        if command is None:
            return
        problem = self._run(command, self._variables(pipeline, outcome))
        if problem is not None:
            say(f"warning: {pipeline}: the command of `{key}` {problem}; the run and its exit code stay as they are")

    def _variables(self, pipeline: str, outcome: Outcome) -> dict[str, str]:
        named = pipeline if len(self._file.pipelines) > 1 else None
        steps = [filled(step, self._file.path, named) for step in outcome.next_steps]
        variables = {
            "PENSTOCK_FILE": self._file.path,
            "PENSTOCK_PIPELINE": pipeline,
            "PENSTOCK_STATUS": outcome.status,
            "PENSTOCK_EXIT_CODE": str(outcome.exit_code),
            "PENSTOCK_ROWS": str(outcome.rows),
            "PENSTOCK_ERROR": "\n".join(outcome.errors),
            "PENSTOCK_NEXT_STEP": "\n".join(dict.fromkeys(steps)),
        }
        return {name: value.replace("\0", "")[:_LONGEST] for name, value in variables.items()}

    def _run(self, command: str, variables: Mapping[str, str]) -> str | None:
        """Run a command in the file's folder; what went wrong."""
        try:
            # Its output goes to standard error, by number: standard output may be JSON for machines.
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self._file.folder,
                env={**self._environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=2,
                stderr=2,
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started: {error.strerror}"
        deadline = time.monotonic() + HOOK_SECONDS
        while process.poll() is None:
            if self._stopping() or time.monotonic() > deadline:
                # With everything that it has started and that is still in its group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "was ended by a signal to this process" if self._stopping() else _too_long()
            time.sleep(_LOOK_SECONDS)
        return f"ended with exit code {process.returncode}" if process.returncode else None


def _too_long() -> str:
    return f"took longer than {HOOK_SECONDS:g} s and was ended"
