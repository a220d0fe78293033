"""The directory of a receiver, where its logs and tokens are: named by --directory, or in a pipeline file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors

if TYPE_CHECKING:
    from penstock.config import File

ReceiverFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="A pipeline file with a `receiver` section, or with a source of type wal.",
        show_default=False,
    ),
]
Directory = Annotated[
    str | None,
    typer.Option("--directory", metavar="DIR", help="The receiver's directory, instead of FILE.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Place:
    """The receiver's directory, and how the command line named it."""

    directory: str
    #: to complete a command in a next step: FILE or --directory DIR
    words: str


@contextmanager
def receiver_place(
    file: str | None, directory: str | None, sets: Sequence[str] = (), *, as_json: bool = False
) -> Iterator[Place]:
    """The receiver's directory; reports errors, with FILE in their next steps replaced by what names it."""
    from penstock.errors import PenstockError

    words = f"--directory {shlex.quote(directory)}" if directory is not None else shlex.quote(file or "FILE")
    with report_errors(file or "", as_json=as_json):
        try:
            yield Place(_find(file, directory, sets), words)
        except PenstockError as error:
            error.next_step = error.next_step.replace("FILE", words)
            raise


def _find(file: str | None, directory: str | None, sets: Sequence[str]) -> str:
    from penstock.errors import UNTOUCHED, InputError

    if (file is None) == (directory is None):
        raise InputError(
            "name the receiver's directory either by FILE or by --directory",
            safe=UNTOUCHED,
            next_step="add --directory DIR, the directory that `penstock serve` was given"
            if file is None
            else "leave one of them out",
        )
    if file is None:
        assert directory is not None
        return directory
    from penstock import wiring

    return _directory_in(wiring.load(file, sets))


def _directory_in(file: File) -> str:
    from penstock.errors import UNTOUCHED, InputError
    from penstock.sources.wal import Options

    if file.receiver is not None:
        return os.path.normpath(os.path.join(file.folder, file.receiver.directory))
    named = {
        os.path.normpath(os.path.join(file.folder, each.source.directory)): name
        for name, each in file.pipelines.items()
        if isinstance(each.source, Options)
    }
    if len(named) == 1:
        return next(iter(named))
    listed = ", ".join(f"{directory} ({name})" for directory, name in sorted(named.items()))
    raise InputError(
        f"{file.path} names several directories of receivers: {listed}"
        if named
        else f"{file.path} has neither a `receiver` section nor a source of type wal, which would name the directory",
        safe=UNTOUCHED,
        next_step="name it with --directory, instead of the file",
    )
