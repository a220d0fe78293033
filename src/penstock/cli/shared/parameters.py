"""Arguments and options that several verbs share, and how their texts are read."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from penstock.cli.shared.environment import add_env_file

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="For machines: JSON on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Pipelines = Annotated[
    list[str] | None,
    typer.Argument(metavar="PIPELINE", help="Pipelines of the file; all by default.", show_default=False),
]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", "-s", metavar="S", help="Only this stream; may be repeated.", show_default=False),
]
Pipeline = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", metavar="P", help="The pipeline; needed if the file has several."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the file, as in source.schema=sales; may be repeated.",
        show_default=False,
    ),
]
#: the variables are in the environment before the verb begins; it need not look at this itself
EnvFile = Annotated[
    str | None,
    typer.Option(
        "--env-file",
        metavar="PATH",
        callback=add_env_file,
        help="Environment variables, a line NAME=value each; one that is set already keeps its value.",
        show_default=False,
    ),
]


def rows(text: str) -> int:
    """A number of rows, at least one."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise typer.BadParameter(f"'{text}' is not a number of rows, such as 100000")
    return int(text)


def duration(text: str) -> float:
    """Seconds from `90`, `90s`, `10m`, `1h30m` or `1.5h`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise typer.BadParameter(f"'{text}' is not a time such as 90, 90s, 10m or 1h30m")
    seconds = sum(float(found[unit] or 0) * size for unit, size in (("h", 3600), ("m", 60), ("s", 1)))
    if seconds <= 0:
        raise typer.BadParameter("the time must be more than 0")
    return seconds


def memory_size(text: str) -> int:
    """Bytes from `2g`, as Java spells it, or `900MiB`."""
    from penstock.core.sizes import size

    spelt = text.strip()
    try:
        found = int(size(f"{spelt}ib" if re.fullmatch(r"[0-9]+[kmgKMG]", spelt) else spelt))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a size such as 900m, 900MiB or 2g") from None
    if found <= 0:
        raise typer.BadParameter("the size must be more than 0")
    return found
