"""Making a damaged folder whole again, on the operator's word: slices that are not whole are withdrawn, last first.

Nothing is deleted: files and manifests move to `withdrawn/`, and the slices are delivered again by the next run.
"""

from __future__ import annotations

import os
import uuid
from urllib.parse import unquote

from penstock.errors import StreamStopped
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.layout import Layout, file_number
from penstock.sinks.files.manifest import make_folders, sync_folder


def make_whole(chain: Chain) -> list[str]:
    """Withdraw manifests from the end until the rest links up and has its files; says what was withdrawn."""
    withdrawn: list[str] = []
    while numbers := chain.numbers():
        try:
            chain.last()
            chain.check_links([chain.read(number) for number in numbers])
            break
        except StreamStopped as reason:
            withdrawn.append(_withdraw(chain, numbers[-1], reason.what))
    return withdrawn + _withdraw_strays(chain, above=numbers[-1] if numbers else 0)


def _withdraw_strays(chain: Chain, above: int) -> list[str]:
    """Files of slices that are not held any more and that no manifest could name, because it was gone or damaged.

    Left where they are, readers would see their rows twice once the slices are delivered again.
    """
    found = []
    for folder, _, names in os.walk(chain.path(chain.layout.data)):
        found += [os.path.join(folder, name) for name in names if (file_number(name) or 0) > above]
    # Asked afterwards: what is visible had its manifest before.
    named = _named(chain) if found else set()
    strays = [path for path in found if os.path.relpath(path, chain.root) not in named]
    if not strays:
        return []
    place = chain.path(os.path.join(chain.layout.withdrawn, f"strays.{uuid.uuid4().hex[:8]}"))
    make_folders(place, chain.root)
    for path in strays:
        os.replace(path, os.path.join(place, os.path.basename(path)))
    return [f"files that no slice names were withdrawn to {place}: {len(strays)}"]


def _named(chain: Chain) -> set[str]:
    """Every file that a manifest names in this stream's folder; other pipelines may write there too."""
    named: set[str] = set()
    for pipeline in os.listdir(chain.path("_penstock")):
        theirs = Chain(chain.root, Layout(unquote(pipeline), chain.layout.stream), chain.probe)
        named |= {file.name for number in theirs.numbers() for file in theirs.read(number).files}
    return named


def _withdraw(chain: Chain, number: int, reason: str) -> str:
    place = chain.path(os.path.join(chain.layout.withdrawn, f"{number}.{uuid.uuid4().hex[:8]}"))
    make_folders(place, chain.root)
    path = chain.manifest_path(number)
    try:
        manifest = chain.read(number)
    except StreamStopped:
        manifest = None
    # Files first: if this is cut short, the slice is still one that is not whole and is withdrawn again.
    for named in manifest.files if manifest else ():
        for place_of in (named.name, named.staged):
            if os.path.exists(chain.path(place_of)):
                os.replace(chain.path(place_of), os.path.join(place, os.path.basename(named.name)))
    if manifest and manifest.link:
        current = chain.path(chain.layout.current)
        if os.path.islink(current) and os.readlink(current) == manifest.link[1]:
            os.unlink(current)
    chain.probe.at("files.files_withdrawn", number=number)
    os.replace(path, os.path.join(place, os.path.basename(path)))
    sync_folder(os.path.dirname(path))
    return f"slice {number} was withdrawn to {place} ({reason})"
