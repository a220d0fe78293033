"""The output folder behind the sink: what a local folder and a prefix of a bucket must both be able to do.

All names are relative to the folder and separated by `/`. A name never ends in `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import StreamRefused
from penstock.ports import Probe
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.manifest import Manifest, SliceFile

if TYPE_CHECKING:
    import pyarrow as pa


class NotStaged(Exception):
    """A staged file that a receipt names is gone: another attempt has committed the slice, or it was swept."""


class Damaged(Exception):
    """The folder is not as the newest manifest says, and cannot be made so."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A complete staged file."""

    #: what a manifest remembers of it: a path, or the id of an upload
    staged: str
    bytes: int
    sha256: str
    #: the parts of an upload, in order
    etags: tuple[str, ...] = ()


class StagedFile(Protocol):
    """A file that is being written and that readers do not see."""

    #: takes the bytes; the encoder closes it
    stream: pa.NativeFile

    def finish(self) -> Staged:
        """Return once the closed file is durable."""
        ...

    def discard(self) -> None:
        """Remove it, complete or not."""
        ...


class Folder(Protocol):
    """One output folder. Small and picklable: workers stage files in it."""

    @property
    def place(self) -> str:
        """The folder as messages name it."""
        ...

    @property
    def checked_manifests(self) -> int:
        """How many of the newest manifests each look reads and compares."""
        ...

    @property
    def concurrency(self) -> int:
        """How many files are worth asking for at the same time."""
        ...

    def path(self, name: str) -> str:
        """A name as messages show it."""
        ...

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise errors of the store as penstock's own, with a next step."""
        ...

    # ------------------------------------------------------------ before a slice

    def connect(self) -> None:
        """Check that the folder can be written; raises InputError or ConnectionFailed."""
        ...

    def find_problems(self, layout: Layout, *, is_refresh: bool) -> Iterator[StreamRefused]:
        """What prevents this stream from being written here."""
        ...

    def advise_on_mixing(self, stream: str) -> str:
        """The next step where slices and a full refresh would lie side by side."""
        ...

    def check_targets(self, layout: Layout, folders: Iterable[str]) -> None:
        """StreamRefused if a staged file could not be made visible in one of these folders."""
        ...

    def names(self, folder: str, limit: int | None = None) -> list[str]:
        """The names in a folder, or at least its first `limit`; empty: there is no such folder."""
        ...

    def has(self, folder: str) -> bool:
        """Whether there is such a folder."""
        ...

    def current(self, layout: Layout) -> str:
        """The name by which readers find the newest full refresh of a stream."""
        ...

    def has_current(self, layout: Layout) -> bool:
        """Whether readers of the stream find a full refresh."""
        ...

    # ------------------------------------------------------------ small documents

    def read(self, name: str) -> str | None:
        """The text of a document; None: there is none."""
        ...

    def create(self, name: str, text: str, near: str, before: Callable[[], None]) -> bool:
        """Create a document durably, only if there is none of that name; False: there is one, and it is another.

        `near`: a folder that is swept, for temporary files. `before` is called once the document is about to exist.
        """
        ...

    def overwrite(self, name: str, text: str) -> None:
        """Write a document at once, whether there is one or not. It may be lost in a power cut, but not torn."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        ...

    def version(self, name: str) -> object | None:
        """Tell one file of a name from another of the same name; None: there is none."""
        ...

    def manifest_numbers(self, layout: Layout, above: int) -> list[int]:
        """The numbers of all manifests above a number, sorted.

        A call may not find what is created meanwhile. If it finds a manifest, it finds all that were created before it.
        Above a number other than 0 it may end before a number that is missing.
        """
        ...

    # ------------------------------------------------------------ data files

    def prepare(self, layout: Layout, number: int, attempt: str) -> str:
        """Make the place where an attempt stages files; returns its name."""
        ...

    def name_attempt(self, pipeline: str, attempt: str) -> str:
        """How file names begin by which leftovers of an attempt are found."""
        ...

    def stage(self, staged: str, final: str) -> StagedFile:
        """Begin a file in the place of an attempt, that will become visible as `final`."""
        ...

    def check_staged(self, file: SliceFile) -> int:
        """The size of a staged file; NotStaged if it is gone."""
        ...

    def size(self, name: str) -> int | None:
        """The size of a visible file; None: there is none."""
        ...

    def publish(self, file: SliceFile) -> int | None:
        """Make a staged file visible, if it is still staged; returns the size of the visible file, None: none."""
        ...

    def published(self, names: Collection[str]) -> None:
        """Return once these names are durable."""
        ...

    # ------------------------------------------------------------ a full refresh

    def stage_current(self, layout: Layout, number: int, attempt: str) -> tuple[str, str] | None:
        """Prepare to point readers to a refresh; returns what its manifest must remember."""
        ...

    def point(self, layout: Layout, manifest: Manifest, probe: Probe) -> None:
        """Point readers to the refresh of this manifest, unless they are; Damaged if they are pointed elsewhere.

        Readers are never pointed back to an older refresh, however late this is called.
        """
        ...

    def unpoint(self, layout: Layout, manifest: Manifest) -> None:
        """Take away what points readers to this refresh."""
        ...

    # ------------------------------------------------------------ leftovers and damage

    def sweep(self, layout: Layout, upto: int, named: Callable[[int], set[str]]) -> None:
        """Remove what attempts at slices up to a number have staged, except what `named` says of each number.

        Of full refreshes, the newest two stay.
        """
        ...

    def withdraw(self, file: SliceFile, target: str) -> None:
        """Move a file away, visible or staged, so that no late writer can make it visible."""
        ...

    def walk(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder."""
        ...

    def move(self, name: str, target: str) -> None:
        """Move a file, if there is one."""
        ...

    def archive(self, layout: Layout, label: str, probe: Probe) -> Sequence[str]:
        """Move everything of a stream away; StreamRefused where that cannot be done."""
        ...


def other_pipelines(folder: Folder, layout: Layout) -> list[str]:
    """Pipelines besides this one that have written the stream's folder."""
    _, own, stream = layout.meta.split("/")
    return [
        name
        for name in sorted(folder.names("_penstock"))
        if name != own and folder.has(f"_penstock/{name}/{stream}/manifests")
    ]
