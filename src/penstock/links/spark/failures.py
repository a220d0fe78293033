"""What a failure of Spark means, in one line with its next step."""

from __future__ import annotations

import signal

from penstock.errors import StreamFailed
from penstock.links.spark.jvm import HEAP_FULL


def died(status: int, log: str) -> StreamFailed:
    """The error of a JVM that ended by itself. `log` is the path of what it said."""
    if status == HEAP_FULL:
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


def telling(text: str) -> str:
    """The line of a failure that says what happened: where a Python traceback ends, or else Spark's own first words."""
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (trace if traced else text).splitlines() if line.strip()]
    if traced:
        lines = [line for line in lines if not line.startswith(" ")]
    return next((line.strip(": ") for line in lines if not line.startswith(("An error occurred while", "\tat "))), "")
