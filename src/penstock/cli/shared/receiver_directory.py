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
    #: where a receiver of this directory listens
    url: str = "http://HOST:PORT"


@contextmanager
def receiver_place(
    file: str | None, directory: str | None, sets: Sequence[str] = (), *, as_json: bool = False
) -> Iterator[Place]:
    """The receiver's directory; reports errors, with FILE in their next steps replaced by what names it."""
    from penstock.errors import PenstockError

    words = f"--directory {shlex.quote(directory)}" if directory is not None else shlex.quote(file or "FILE")
    with report_errors(file or "", as_json=as_json):
        try:
            yield _find(file, directory, sets, words)
        except PenstockError as error:
            error.next_step = error.next_step.replace("FILE", words)
            raise


def _find(file: str | None, directory: str | None, sets: Sequence[str], words: str) -> Place:
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
        return Place(directory, words)
    from penstock import wiring

    loaded = wiring.load(file, sets)
    if loaded.receiver is None:
        return Place(_directory_of_sources(loaded), words)
    receiver = loaded.receiver
    host = f"[{receiver.host}]" if ":" in receiver.host else receiver.host
    url = f"http{'s' if receiver.tls else ''}://{host}:{receiver.port}"
    return Place(os.path.normpath(os.path.join(loaded.folder, receiver.directory)), words, url)


def _directory_of_sources(file: File) -> str:
    from penstock.errors import UNTOUCHED, InputError
    from penstock.sources.wal import Options

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
