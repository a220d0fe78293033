"""The streams that a verb is about, with the folders of their logs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from penstock.cli.shared.receiver_directory import Place


def choose_streams(place: Place, streams: Sequence[str] | None) -> dict[str, str]:
    """The folder of each stream's log: of the named streams, or of all. InputError for a stream without a log."""
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError
    from penstock.wal.folders import folder_of, list_streams

    if not os.path.isdir(place.directory):
        raise InputError(
            f"there is no directory {place.directory}",
            safe=UNTOUCHED,
            next_step="name the directory that `penstock serve` was given",
        )
    known = list_streams(place.directory)
    for stream in streams or ():
        if stream not in known:
            raise InputError(
                f"there is no log of a stream '{stream}' in {place.directory}; {suggest(stream, known, 'streams')}",
                safe=UNTOUCHED,
                next_step="list them: penstock wal inspect FILE",
            )
    chosen = known if streams is None else dict.fromkeys(streams)
    return {stream: folder_of(place.directory, stream) for stream in chosen}


def require_stream(place: Place, stream: str) -> str:
    """The folder of one stream's log."""
    return choose_streams(place, [stream])[stream]
