"""Move everything that a stream has delivered away, so that the stream can begin again in another form."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from penstock.errors import StreamRefused
from penstock.links.durable import make_folder, sync
from penstock.ports import Probe
from penstock.sinks.files.folder import Folder, other_pipelines
from penstock.sinks.files.layout import Layout

#: names in an archive: the manifests and refreshes, and the folder that readers saw
META, DATA = "_penstock", "data"


def archive(folder: Folder, layout: Layout, label: str, probe: Probe) -> Sequence[str]:
    """Move a stream's manifests, then its data, into one folder of `_before`; returns a line that names it.

    Without its manifests the stream stops. So if a process dies between the two moves, no run takes the rest for
    complete; the next call finishes the same archive.
    """
    root = folder.place
    meta, data = os.path.join(root, layout.meta), os.path.join(root, layout.data)
    if others := other_pipelines(folder, layout):
        raise StreamRefused(
            f"the folder {data} cannot be moved away: pipeline {others[0]!r} writes it too",
            next_step="give this pipeline a directory of its own",
        )
    place = os.path.join(root, f"{layout.archives}-{label}")
    if os.path.isdir(meta):
        make_folder(place)
        _move(meta, os.path.join(place, META))
    elif unfinished := _find_unfinished(root, layout):
        place = unfinished
    elif os.path.lexists(data):
        raise StreamRefused(
            f"the folder {data} is not moved away: this stream has never been delivered there",
            next_step="move it away yourself, or give this pipeline a directory of its own",
        )
    else:
        return []
    probe.at("files.manifests_archived")
    if os.path.lexists(data):
        make_folder(place)
        _move(data, os.path.join(place, DATA))
    _point_to_archive(place)
    sync(root)
    return [f"everything delivered before is in {place} now ({DATA}: the files, {META}: their manifests)"]


def _find_unfinished(root: str, layout: Layout) -> str | None:
    """An archive whose data was not moved yet."""
    for place in sorted(glob.glob(f"{glob.escape(os.path.join(root, layout.archives))}-*"), reverse=True):
        if os.path.isdir(os.path.join(place, META)) and not os.path.lexists(os.path.join(place, DATA)):
            return place
    return None


def _move(source: str, target: str) -> None:
    os.rename(source, target)
    sync(os.path.dirname(target))
    sync(os.path.dirname(source))


def _point_to_archive(place: str) -> None:
    """Point `current` to the refresh in its new place."""
    link = os.path.join(place, DATA, "current")
    if not os.path.islink(link):
        return
    target = os.path.join("..", META, "refresh", os.path.basename(os.readlink(link)))
    if os.readlink(link) != target:
        temporary = f"{link}.new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.rename(temporary, link)
        sync(os.path.dirname(link))
