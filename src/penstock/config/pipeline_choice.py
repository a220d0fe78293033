"""Chooses the pipelines and streams that a command works on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.config.models import File
from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError, filled


def choose_pipelines(file: File, names: Sequence[str] | None) -> list[str]:
    """The named pipelines; all pipelines of the file if none was named."""
    known = list(file.pipelines)
    for name in names or ():
        if name not in known:
            raise InputError(
                f"there is no pipeline '{name}' in {file.path}; {suggest(name, known, 'pipelines')}",
                safe=UNTOUCHED,
                next_step="use one of the file's pipelines",
            )
    return list(dict.fromkeys(names)) if names else known


def choose_pipeline(file: File, name: str | None, command: str) -> str:
    """The one pipeline that a command works on; `command` is the command without it, for the next step of an error."""
    names = choose_pipelines(file, [name] if name else None)
    if len(names) > 1:
        raise InputError(
            f"{file.path} has {len(names)} pipelines: {', '.join(names)}",
            safe=UNTOUCHED,
            next_step=f"name one of them, for example: {filled(command, file.path, names[0])}",
        )
    return names[0]


def require_streams(
    wanted: Sequence[str] | None,
    known: Collection[str],
    pipeline: str | None = None,
    next_step: str = "list the streams: `penstock status FILE`",
) -> None:
    """Raise InputError for a named stream that does not exist."""
    for stream in wanted or ():
        if stream not in known:
            raise InputError(
                f"there is no stream '{stream}'; {suggest(stream, set(known), 'streams')}",
                safe=UNTOUCHED,
                next_step=next_step,
                pipeline=pipeline,
            )
