"""What becomes of files that are not as they were when they were delivered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.sizes import count_noun
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.looking import Look
from penstock.sources.files.options import StreamOptions
from penstock.sources.files.places import Place, describe_change, shown
from penstock.sources.files.seen import Compared, compare

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.files.places import File


@dataclass(frozen=True)
class Candidates:
    """Files to read, in order."""

    files: list[File]
    #: what a run should say of the others, one line each
    warnings: list[str] = field(default_factory=list)


def find_candidates(options: StreamOptions, place: Place, look: Look, seen: pa.Table, stream: str) -> Candidates:
    """The files that were not seen yet; StreamRefused where the policy stands against what has changed."""
    found = compare(seen, look.files)
    if options.on_vanish == "refuse" and found.vanished:
        raise StreamRefused(
            f"{_delivered(found.vanished)} no longer in {place.shown}, such as {shown(found.vanished_example)}",
            safe=UNTOUCHED,
            next_step="put it back; or set `on_vanish: ignore`, which keeps the rows of such files",
            stream=stream,
        )
    warnings = []
    if others := _describe_others(found):
        if options.on_change == "refuse":
            raise StreamRefused(
                f"in {place.shown}, {others}",
                safe=UNTOUCHED,
                next_step="put the files back as they were, and give new contents new names; or set `on_change: "
                "ignore`, which does not read them; if they are the same files, copied or moved: `penstock rewind FILE "
                f"--to now --stream {stream}` takes every file that is there now as delivered",
                stream=stream,
            )
        warnings.append(f"not read: {others}")
    return Candidates(found.new, warnings)


def _describe_others(found: Compared) -> str:
    said = []
    if found.changed:
        file, was = found.changed[0]
        how = describe_change(was, file.version)
        said.append(f"{_delivered(len(found.changed))} not as before, such as {shown(file.path)}: {how}")
    if found.renamed:
        file, before = found.renamed[0]
        count = _delivered(len(found.renamed))
        said.append(f"{count} there under another name, such as {shown(before)}, which is {shown(file.path)} now")
    return "; ".join(said)


def _delivered(count: int) -> str:
    return f"{count_noun(count, 'file')} that {'was delivered is' if count == 1 else 'were delivered are'}"
