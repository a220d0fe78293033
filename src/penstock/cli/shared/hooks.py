"""Runs the commands of `on_failure` and `on_success` after a run. They do not change the run's result."""

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

from penstock.cli.shared.error_report import print_error, report_errors
from penstock.core.messages import ConnectionStatus, Eof, Message, Status, StreamStatus
from penstock.errors import PenstockError, filled

if TYPE_CHECKING:
    from penstock.config import File

#: seconds after which a command is killed
HOOK_SECONDS = 60.0
#: seconds between two checks whether a command has ended
_POLL_SECONDS = 0.05
#: characters of one variable: the system refuses an environment that is too large
_MAX_VARIABLE_CHARACTERS = 8000
#: exit codes that run `on_failure`: not 4 (another process holds the pipeline), and not those of signals
FAILURE_EXIT_CODES = (1, 2, 3)


@dataclass
class Outcome:
    """How a pipeline's run ended, collected from its messages."""

    status: str = "failed"
    exit_code: int = 1
    rows: int = 0
    errors: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, error: PenstockError) -> Outcome:
        """The outcome of a run that could not start."""
        return cls(exit_code=error.exit_code, errors=[error.what], next_steps=[error.next_step])

    @contextlib.contextmanager
    def report_errors(self, file: str, *, as_json: bool) -> Iterator[None]:
        """Report an error of a pipeline's run and record it, so that the other pipelines still run."""
        try:
            with report_errors(file, as_json=as_json):
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
        """Record what a message says about the outcome."""
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
        """`stopping` returns whether a signal has arrived; then no command is waited for."""
        self._file = file
        self._environment = environment
        self._stopping = stopping

    def call(self, pipeline: str, outcome: Outcome) -> None:
        """Run the command for this outcome, if there is one. A problem with the command is only a warning."""
        chosen = self._file.pipelines[pipeline]
        if outcome.exit_code == 0:
            key, command = "on_success", chosen.on_success or self._file.on_success
        elif outcome.exit_code in FAILURE_EXIT_CODES:
            key, command = "on_failure", chosen.on_failure or self._file.on_failure
        else:
            return
        if command is None:
            return
        problem = self._run(command, self._variables(pipeline, outcome))
        if problem is not None:
            print_error(f"warning: {pipeline}: the `{key}` command {problem}; the run's result is unchanged")

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
        return {name: value.replace("\0", "")[:_MAX_VARIABLE_CHARACTERS] for name, value in variables.items()}

    def _run(self, command: str, variables: Mapping[str, str]) -> str | None:
        """Run a command in the file's folder, and return what went wrong."""
        try:
            # Its output goes to standard error, because standard output may be JSON.
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
                # Kill the whole process group: the command may have started others.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "was killed because this process received a signal" if self._stopping() else _too_long()
            time.sleep(_POLL_SECONDS)
        return f"ended with exit code {process.returncode}" if process.returncode else None


def _too_long() -> str:
    return f"took longer than {HOOK_SECONDS:g} s and was killed"
