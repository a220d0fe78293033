"""`penstock completion`: shells complete verbs and options, and the pipelines and streams that a file names.

Typer's own machinery asks; what a file names is read from the file alone, without its variables and without connecting.
A file that cannot be read completes nothing, quietly: whoever presses Tab has not asked for an error.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

PROGRAM = "penstock"
#: set by the script that a shell has loaded: the question, such as `complete_bash`
VARIABLE = "_PENSTOCK_COMPLETE"


class Shell(enum.StrEnum):
    """Shells whose script can be printed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print a script that lets a shell complete verbs, options, pipelines and streams.

    \b
    Examples:
      source <(penstock completion bash)                                    # for this shell
      penstock completion bash > ~/.local/share/bash-completion/completions/penstock
      penstock completion zsh > ~/.zfunc/_penstock                          # with ~/.zfunc in fpath
      penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from typer.completion import get_completion_inspect_parameters, shell_complete

    get_completion_inspect_parameters()  # makes the shells known
    command: Any = None  # the script names the program, and knows nothing of its verbs
    raise typer.Exit(shell_complete(command, {}, PROGRAM, VARIABLE, f"source_{shell.value}"))


def answer(app: typer.Typer) -> int:
    """Answer a shell's question, which is in the environment; the exit code."""
    from typer.completion import get_completion_inspect_parameters, shell_complete

    get_completion_inspect_parameters()
    command: Any = typer.main.get_command(app)
    for parameter in _parameters(command):
        if parameter.name in _KNOWN:
            parameter.shell_complete = _KNOWN[parameter.name]
    return shell_complete(command, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])


@dataclass(frozen=True)
class Item:
    """A word that is offered, as Typer's shells expect it."""

    value: str
    help: str | None = None
    type: str = "plain"


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from _parameters(below)


def _words(context: Any) -> list[str]:
    """FILE and PIPELINE… as far as they are there.

    After an option that still wants its value Typer has not sorted them yet.
    """
    params = context.params
    sorted_ = [params["file"], *(params.get("pipelines") or ())] if params.get("file") else []
    return sorted_ or [word for word in context.args if not word.startswith("-")]


def _pipelines(context: Any, incomplete: str) -> list[Item]:
    chosen = _words(context)[1:]
    return _offered((name for name in _named(context) if name not in chosen), incomplete)


def _streams(context: Any, incomplete: str) -> list[Item]:
    pipelines = _named(context)
    one = context.params.get("pipeline")
    wanted = _words(context)[1:] or ([one] if one else pipelines)
    chosen = context.params.get("stream") or ()
    names = dict.fromkeys(name for pipeline in wanted for name in pipelines.get(pipeline, ()))
    return _offered((name for name in names if name not in chosen), incomplete)


#: by the name of the parameter, whatever the verb
_KNOWN: dict[str | None, Callable[[Any, str], list[Item]]] = {
    "pipelines": _pipelines,
    "pipeline": _pipelines,
    "stream": _streams,
}


def _offered(names: Iterator[str], incomplete: str) -> list[Item]:
    return [Item(name) for name in names if name.startswith(incomplete)]


def _named(context: Any) -> dict[str, list[str]]:
    """Pipelines with their streams, from the file that the command line has named before."""
    import yaml

    try:
        with open(os.path.expanduser("".join(_words(context)[:1])), encoding="utf-8") as file:
            # Nothing but texts, lists and maps.
            document = yaml.load(file, Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    pipelines = document.get("pipelines") if isinstance(document, dict) else None
    if not isinstance(pipelines, dict):
        return {}
    return {str(name): _streams_of(pipeline) for name, pipeline in pipelines.items()}


def _streams_of(pipeline: Any) -> list[str]:
    streams = pipeline.get("streams") if isinstance(pipeline, dict) else None
    return [str(stream) for stream in streams] if isinstance(streams, dict) else []
