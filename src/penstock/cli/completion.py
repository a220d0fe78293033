"""`penstock completion`: shell completion of verbs and options, and of the pipelines and streams in a file.

Typer answers the shell. Pipelines and streams are read from the file alone, without its variables and without a
connection. An unreadable file completes nothing: a press of Tab must not print an error.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

PROGRAM = "penstock"
#: set by the completion script; its value is the request, such as `complete_bash`
VARIABLE = "_PENSTOCK_COMPLETE"


class Shell(enum.StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print a completion script for verbs, options, pipelines and streams.

    \b
    Examples:
      source <(penstock completion bash)                                    # for this shell
      penstock completion bash > ~/.local/share/bash-completion/completions/penstock
      penstock completion zsh > ~/.zfunc/_penstock                          # with ~/.zfunc in fpath
      penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from typer.completion import get_completion_inspect_parameters, shell_complete

    get_completion_inspect_parameters()  # registers the shells
    command: Any = None  # the script contains only the program's name
    raise typer.Exit(shell_complete(command, {}, PROGRAM, VARIABLE, f"source_{shell.value}"))


def answer(app: typer.Typer) -> int:
    """Answer the completion request in the environment, and return the exit code."""
    from typer.completion import get_completion_inspect_parameters, shell_complete

    get_completion_inspect_parameters()
    command: Any = typer.main.get_command(app)
    for parameter in _parameters(command):
        if parameter.name in _COMPLETERS:
            parameter.shell_complete = _COMPLETERS[parameter.name]
    return shell_complete(command, {}, PROGRAM, VARIABLE, os.environ[VARIABLE])


@dataclass(frozen=True)
class Item:
    """A completion in the form that Typer's shells expect."""

    value: str
    help: str | None = None
    type: str = "plain"


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from _parameters(below)


def _arguments(context: Any) -> list[str]:
    """FILE and PIPELINE… as far as they are typed.

    While an option lacks its value, Typer has not assigned them to parameters yet.
    """
    params = context.params
    sorted_ = [params["file"], *(params.get("pipelines") or ())] if params.get("file") else []
    return sorted_ or [word for word in context.args if not word.startswith("-")]


def _pipelines(context: Any, incomplete: str) -> list[Item]:
    chosen = _arguments(context)[1:]
    return _matching((name for name in _pipelines_in_file(context) if name not in chosen), incomplete)


def _streams(context: Any, incomplete: str) -> list[Item]:
    pipelines = _pipelines_in_file(context)
    one = context.params.get("pipeline")
    wanted = _arguments(context)[1:] or ([one] if one else pipelines)
    chosen = context.params.get("stream") or ()
    names = dict.fromkeys(name for pipeline in wanted for name in pipelines.get(pipeline, ()))
    return _matching((name for name in names if name not in chosen), incomplete)


#: completion functions by parameter name, for all verbs
_COMPLETERS: dict[str | None, Callable[[Any, str], list[Item]]] = {
    "pipelines": _pipelines,
    "pipeline": _pipelines,
    "stream": _streams,
}


def _matching(names: Iterator[str], incomplete: str) -> list[Item]:
    return [Item(name) for name in names if name.startswith(incomplete)]


def _pipelines_in_file(context: Any) -> dict[str, list[str]]:
    """Pipelines with their streams, from the file on the command line."""
    import yaml

    try:
        with open(os.path.expanduser("".join(_arguments(context)[:1])), encoding="utf-8") as file:
            # This loader creates only strings, lists and mappings.
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
