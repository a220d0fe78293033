"""Starts a worker, detached or in this process; asks a running one for its status, or to stop."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import wiring
from penstock.config import File
from penstock.errors import UNTOUCHED, InputError, PenstockError, StreamFailed
from penstock.links.cache import cache_folder
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.shared import SparkRequirements
from penstock.warm import wire
from penstock.warm.child import HandedRun
from penstock.warm.jvm import WarmSpark
from penstock.warm.worker import Worker
from penstock.warm.worker_folder import SOCKET, WorkerFolder, name_of

#: seconds that a worker may take to answer a question
ANSWER_SECONDS = 5.0
#: seconds that a worker that is ending may take to be gone
EXIT_SECONDS = 60.0
POLL_SECONDS = 0.05


#: starts the Spark that a worker keeps; tests replace it
make_spark: Callable[[SparkOptions, Mapping[str, str], Sequence[str]], WarmSpark] = WarmSpark


def must_be_linux() -> None:
    if sys.platform != "linux":
        raise InputError(
            "a warm worker requires Linux, where a socket identifies the user at its other end",
            safe=UNTOUCHED,
            next_step="run without a worker: `penstock run FILE` starts its own Spark",
        )


def store_name(file: File) -> str:
    """The name of the worker that serves this file's store."""
    return name_of(wiring.store_address(file))


# ---------------------------------------------------------------- a running worker


def ask(name: str, question: str) -> tuple[dict[str, Any], socket.socket] | None:
    """The answer of a store's worker, with the connection; None: there is none, or it does not answer."""
    folder = WorkerFolder.find()
    if folder is None:
        return None
    with folder:
        connection = folder.connect(name, ANSWER_SECONDS)
    if connection is None:
        return None
    try:
        wire.send(connection, {question: True})
        answer, _ = wire.receive(connection, ANSWER_SECONDS)
    except wire.Gone:
        connection.close()
        return None
    return answer, connection


def status(file: File) -> dict[str, Any] | None:
    """The status of the worker of this file's store; None: there is none."""
    found = ask(store_name(file), "status")
    if found is None:
        return None
    answer, connection = found
    connection.close()
    document: dict[str, Any] | None = answer.get("status")
    return document


def stop(file: File) -> dict[str, Any] | None:
    """Stop the worker of this file's store and wait for its end; its last status. None: there was none."""
    name = store_name(file)
    found = ask(name, "stop")
    if found is None:
        return None
    answer, connection = found
    with connection, contextlib.suppress(wire.Gone):  # it closes the connection at its end
        wire.receive(connection, None)
    _await_end(name)
    document: dict[str, Any] = answer["stopping"]
    return document


def _await_end(name: str) -> None:
    """Wait until a worker that is ending has given up its lock."""
    deadline = time.monotonic() + EXIT_SECONDS
    with WorkerFolder.make() as folder:
        while True:
            with folder.locked(name) as free:
                if free:
                    return
            if time.monotonic() > deadline:
                raise StreamFailed(
                    "the warm worker is stopping but has not exited yet",
                    safe=UNTOUCHED,
                    next_step="wait, or find the process with `ps` and kill it",
                )
            time.sleep(POLL_SECONDS)


# ---------------------------------------------------------------- a new one


def words_for(idle_seconds: float, memory_limit: int, sets: Sequence[str]) -> list[str]:
    """The command of a worker, without its file."""
    words = ["warm", "--memory", str(memory_limit), "--for", f"{idle_seconds:.3f}"]
    return words + [word for each in sets for word in ("--set", each)]


def log_path(name: str) -> Path:
    return cache_folder() / f"warm-{name}.log"


def start_detached(
    words: Sequence[str],
    path: str,
    name: str,
    environment: Mapping[str, str],
    on_message: Callable[[dict[str, Any]], object] | None,
) -> subprocess.Popen[bytes]:
    """Start `penstock WORDS --foreground PATH` in the background; `on_message` gets what it says until it is ready.

    Without `on_message` it is not waited for.
    """
    log = log_path(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            # -P: a module in the folder it works in must not be taken for one of ours.
            [sys.executable, "-P", "-m", "penstock", *words, "--foreground", "--ready-fd", str(writing), "--", path],
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            env=dict(environment),
            start_new_session=True,
            pass_fds=(writing,),
        )
    finally:
        os.close(handle)
        os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        for line in pipe if on_message is not None else ():
            assert on_message is not None
            on_message(json.loads(line))
    return process


def serve(
    file: File,
    *,
    idle_seconds: float,
    memory_limit: int,
    description: Mapping[str, Any],
    preload: Callable[[], object],
    tell: Callable[[dict[str, Any]], object],
) -> HandedRun | None:
    """Be the worker of a file's store until it ends; in a process that was forked for a run, return that run.

    `tell` gets what is being done and at last `ready`. InputError if the store has a worker already.
    """
    from penstock.warm.imports import freeze_for_forks, import_for_runs
    from penstock.warm.store_watch import StoreWatch

    must_be_linux()
    name = store_name(file)
    folder = WorkerFolder.make()
    lock = folder.lock(name)
    if lock is None:
        raise InputError(
            "the store already has a warm worker",
            safe=UNTOUCHED,
            next_step="use that worker, or stop it first: `penstock warm FILE --stop`",
        )
    tell({"doing": "starting Spark"})
    options, needs = spark_needs(file)
    spark = make_spark(options, needs.settings, needs.packages)
    try:
        preload()
        import_for_runs(lake=any("iceberg" in package for package in needs.packages))
        spark.start()
        freeze_for_forks()
        worker = Worker(
            folder,
            name,
            lock,
            spark,
            StoreWatch(wiring.store_path(file), lambda: wiring.missing_store(file) is not None),
            description=description,
            idle_seconds=idle_seconds,
            memory_limit=memory_limit,
            log=_log,
        )
    except BaseException:
        spark.end()
        folder.remove(name + SOCKET)
        folder.unlock(name, lock)
        raise
    folder.set_alias(file.path, name)
    return worker.serve(lambda: tell({"ready": worker.document()}))


def spark_needs(file: File) -> tuple[SparkOptions, SparkRequirements]:
    """The Spark that all pipelines of a file need together, without what each session may have of its own."""
    options = SparkOptions(**file.spark.model_dump(exclude={"keep_warm"}))
    together = SparkRequirements(dict(options.config))
    for needs in wiring.requirements_of(file, list(file.pipelines)):
        together = together.combine_with(needs.only_at_start())
    return options, together


def _log(text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z warm worker {os.getpid()} {text}", file=sys.stderr, flush=True)


def failure(document: Mapping[str, Any]) -> PenstockError:
    """The error that a worker reported while it started."""
    kind = InputError if document["exit_code"] == InputError.exit_code else StreamFailed
    return kind(document["what"], safe=document["safe"], next_step=document["next_step"])
