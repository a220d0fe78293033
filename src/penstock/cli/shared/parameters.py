"""Arguments and options that several verbs share, and the parsers of their values."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from penstock.cli.shared.environment import add_env_file

_DURATION = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)d)?(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?"
)

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Pipelines = Annotated[
    list[str] | None,
    typer.Argument(metavar="PIPELINE", help="Pipelines of the file. Default: all.", show_default=False),
]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", "-s", metavar="S", help="Only this stream. May be repeated.", show_default=False),
]
RequiredStreams = Annotated[
    list[str],
    typer.Option("--stream", "-s", metavar="S", help="The stream. May be repeated.", show_default=False),
]
Pipeline = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", metavar="P", help="The pipeline. Required if the file has several."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the file, for example source.schema=sales. May be repeated.",
        show_default=False,
    ),
]
#: the callback adds the variables to the environment before the verb starts
EnvFile = Annotated[
    str | None,
    typer.Option(
        "--env-file",
        metavar="PATH",
        callback=add_env_file,
        help="Read environment variables from this file, one NAME=value per line. Variables that are already set "
        "keep their values.",
        show_default=False,
    ),
]


def rows(text: str) -> int:
    """A number of rows, at least one."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise typer.BadParameter(f"'{text}' is not a number of rows, such as 100000")
    return int(text)


def duration(text: str) -> float:
    """Seconds from `90`, `90s`, `10m`, `1h30m`, `1.5h` or `90d`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise typer.BadParameter(f"'{text}' is not a duration such as 90, 90s, 10m or 1h30m")
    seconds = sum(float(match[unit] or 0) * size for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)))
    if seconds <= 0:
        raise typer.BadParameter("the duration must be greater than 0")
    return seconds


def memory_size(text: str) -> int:
    """Bytes from `2g`, as in Java's options, or `900MiB`."""
    from penstock.core.sizes import size

    stripped = text.strip()
    try:
        count = int(size(f"{stripped}ib" if re.fullmatch(r"[0-9]+[kmgKMG]", stripped) else stripped))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a size such as 900m, 900MiB or 2g") from None
    if count <= 0:
        raise typer.BadParameter("the size must be greater than 0")
    return count
