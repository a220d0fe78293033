"""`penstock warm`: keeps Spark running in a background worker, so that runs start fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Set, duration, memory_size

if TYPE_CHECKING:
    from penstock import config

#: seconds without a run after which a worker exits
DEFAULT_IDLE_SECONDS = 900.0


def warm(
    file: File,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="TIME",
            parser=duration,
            help="Exit after this time without a run: 90s, 15m, 2h. Default: `spark.keep_warm`, or 15m.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            metavar="SIZE",
            parser=memory_size,
            help="Exit after a run that leaves more than this much memory in use: 900MiB, 2GiB.",
        ),
    ] = "2GiB",  # type: ignore[assignment]  # Typer passes the string to the parser
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the worker; a run in progress is stopped cleanly first.")
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run the worker in this process, for example under systemd.")
    ] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Start a background worker that keeps Spark running. `penstock run` uses it and need not start Spark.

    \b
    Examples:
      penstock warm shop.yaml
      penstock warm shop.yaml --for 2h --memory 1GiB
      penstock warm shop.yaml --stop
      penstock warm shop.yaml --foreground

    A run in the worker prints the same lines and ends with the same exit code. A run whose environment, folder, umask,
    limits or version differ from the worker's runs in its own process and says so. So does a run while the worker is
    busy. `penstock run --here` never uses the worker.

    One worker serves one store. It exits after --for without a run, after a run that leaves more than --memory in use,
    when its store is deleted or its store's server fails three queries in a row, a minute apart, and after an upgrade
    of penstock. `penstock status` shows it.
    """
    with report_errors(file, as_json=as_json):
        from penstock import wiring

        if stop:
            _stop(wiring.load(file, set_ or ()), as_json)
        elif foreground or ready_fd is not None:
            _serve(file, set_ or [], for_, memory, ready_fd, as_json)
        else:
            _start(file, set_ or [], for_, memory, as_json)


def _start(path: str, sets: list[str], idle: float | None, memory: int, as_json: bool) -> None:
    import os

    from penstock import wiring
    from penstock.warm import starting

    starting.must_be_linux()
    file = wiring.load(path, sets)
    name = starting.store_name(file)
    worker = starting.status(file)
    if worker is not None:
        _show(worker, as_json, "is already running")
        return
    arguments = starting.words_for(_idle(file, idle), memory, sets)
    heard: list[dict[str, Any]] = []

    def hear(message: dict[str, Any]) -> None:
        heard.append(message)
        if "doing" in message and not as_json:
            print(f"{message['doing']} …", flush=True)

    process = starting.start_detached(arguments, path, name, os.environ, hear)
    if not heard or "ready" not in heard[-1]:
        if heard and "failed" in heard[-1]:
            raise starting.failure(heard[-1]["failed"])
        process.wait()
        raise starting.failure(
            {
                "exit_code": 1,
                "what": f"the warm worker exited during its start (exit code {process.returncode})",
                "safe": "",
                "next_step": f"read its log, {starting.log_path(name)}",
            }
        )
    _show(heard[-1]["ready"], as_json, "is ready")


def _idle(file: config.File, given: float | None) -> float:
    if given is not None:
        return given
    configured = file.spark.keep_warm
    return configured.total_seconds() if configured is not None else DEFAULT_IDLE_SECONDS


def _serve(path: str, sets: list[str], idle: float | None, memory: int, ready_fd: int | None, as_json: bool) -> None:
    import contextlib
    import json
    import os
    from importlib import import_module

    from penstock import wiring
    from penstock.errors import PenstockError
    from penstock.warm import compatibility, starting

    description = compatibility.describe_process(os.environ)

    def tell(message: dict[str, Any]) -> None:
        if ready_fd is None and as_json:
            print(json.dumps(message), flush=True)
        elif ready_fd is None and "ready" in message:
            _show(message["ready"], False, "is ready")
        if ready_fd is None:
            return
        with contextlib.suppress(BrokenPipeError):  # the command that started this worker did not wait
            os.write(ready_fd, json.dumps(message).encode() + b"\n")
        if "doing" not in message:
            os.close(ready_fd)

    def preload() -> None:
        for name in (
            "cli.run",
            "cli.shared.engine_run",
            "cli.shared.hooks",
            "cli.shared.quiet_timer",
            "cli.display.live",
        ):
            import_module(f"penstock.{name}")

    try:
        file = wiring.load(path, sets)
        handed = starting.serve(
            file,
            idle_seconds=_idle(file, idle),
            memory_limit=memory,
            description=description,
            preload=preload,
            tell=tell,
        )
    except PenstockError as error:
        if ready_fd is None:
            raise
        tell({"failed": {k: getattr(error, k) for k in ("what", "safe", "next_step", "exit_code")}})
        raise typer.Exit(error.exit_code) from error
    if handed is not None:
        from penstock.cli import main
        from penstock.cli.shared.environment import adopt

        adopt(handed.env_file_variables)
        handed.run(main)


def _stop(file: config.File, as_json: bool) -> None:
    from penstock.warm import starting

    worker = starting.stop(file)
    if worker is None:
        _print({"worker": None}, as_json, f"No warm worker is running for the store of {file.path}.")
    else:
        _print({"worker": worker}, as_json, f"The warm worker (pid {worker['pid']}) has stopped.")


def _show(document: dict[str, Any], as_json: bool, how: str) -> None:
    from penstock.cli.shared.warm_worker import worker_lines

    _print({"worker": document}, as_json, "\n".join([f"The warm worker {how}.", *worker_lines(document)]))


def _print(document: dict[str, Any], as_json: bool, text: str) -> None:
    import json

    print(json.dumps(document, ensure_ascii=False, indent=2) if as_json else text)
