"""Errors for failures of Spark, each in one line with its next step."""

from __future__ import annotations

import re
import signal

from penstock.errors import ConnectionFailed, InputError, PenstockError, StreamFailed
from penstock.links.spark.jvm import HEAP_FULL_STATUS


def jvm_died(status: int, log: str) -> StreamFailed:
    """The error where a JVM has ended by itself. `log` is the path of its log."""
    if status == HEAP_FULL_STATUS:
        return StreamFailed(
            "Spark died: the heap of its JVM was full",
            next_step=f"give it more, as in `spark: {{memory: 2g}}`, and run again; its log is in {log}",
        )
    if status == -signal.SIGKILL:
        return StreamFailed(
            "Spark died: its JVM was killed (signal 9), as the system does when memory runs out",
            next_step="run again; if it happens again, look for it in the output of `dmesg`, and give this machine "
            'more memory, or Spark fewer workers, as in `spark: {master: "local[1,3]"}`',
        )
    how = f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
    return StreamFailed(
        f"Spark died: its JVM {how}",
        next_step=f"run again; if it happens again, its log is in {log}",
    )


def start_failed(master: str, text: str, log: str) -> PenstockError:
    """The error where Spark does not start. `log` is the path of its log."""
    if "stopped SparkContext" in text or "masters are unresponsive" in text:
        return ConnectionFailed(
            f"Spark's master {master} did not accept this application; Spark's log is {log}",
            next_step="check that it is a Spark master of the same version, and that it can connect to this machine; "
            "`spark.driver.host` in `spark.config` sets the address of this machine for the cluster",
        )
    return InputError(
        f"Spark could not be started ({master}): {text}; its log is {log}",
        next_step="check that Java 17 or newer is installed (`script/setup` installs it) and that JAVA_HOME, if "
        "set, is its folder",
    )


def unfit_python(text: str, python: str, version: str) -> InputError | None:
    """The error where the workers' Python cannot run our parts; None: they fail for another reason.

    `python` is the one that they are to run, `version` penstock's own.
    """
    if found := re.search(r"ModuleNotFoundError: No module named '([^'.]+)", text):
        wrong = f"the Python of Spark's workers ({python}) has no {found[1]}"
    elif "PYTHON_VERSION_MISMATCH" in text:
        wrong = f"the Python of Spark's workers ({python}) has another version than this one"
    elif re.search(r"Cannot run program .*No such file", text):
        wrong = f"Spark's workers have no {python}"
    else:
        return None
    return InputError(
        wrong,
        next_step=f"install penstock {version} there too, or name a Python that has it: "
        "`spark: {config: {spark.pyspark.python: /opt/penstock/bin/python}}`",
    )


def key_line(text: str) -> str:
    """The most telling line of a failure: the end of a Python traceback, or else Spark's own first line."""
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (trace if traced else text).splitlines() if line.strip()]
    if traced:
        lines = [line for line in lines if not line.startswith(" ")]
    return next((line.strip(": ") for line in lines if not line.startswith(("An error occurred while", "\tat "))), "")
