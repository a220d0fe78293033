"""Repair a damaged folder at the operator's command: withdraw slices that are not complete, last first.

Nothing is deleted: files and manifests move to `withdrawn/`, and the next run delivers the slices again.
"""

from __future__ import annotations

import os
import uuid
from urllib.parse import unquote

from penstock.errors import StreamStopped
from penstock.links.durable import make_folder, sync
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.layout import Layout, file_number


def withdraw_broken(chain: Chain) -> list[str]:
    """Withdraw manifests from the end until the rest is an unbroken chain with all files; list what was withdrawn."""
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
    """Withdraw files of withdrawn slices whose manifest was missing or damaged.

    Otherwise readers would see their rows twice once the slices are delivered again.
    """
    paths: list[str] = []
    for folder, _, names in os.walk(chain.path(chain.layout.data)):
        paths += [os.path.join(folder, name) for name in names if (file_number(name) or 0) > above]
    # Read afterwards: a visible file had its manifest before.
    named = _list_named(chain) if paths else set()
    strays = [path for path in paths if os.path.relpath(path, chain.root) not in named]
    if not strays:
        return []
    place = chain.path(os.path.join(chain.layout.withdrawn, f"strays.{uuid.uuid4().hex[:8]}"))
    make_folder(place)
    for path in strays:
        os.replace(path, os.path.join(place, os.path.basename(path)))
    return [f"files that no slice names were withdrawn to {place}: {len(strays)}"]


def _list_named(chain: Chain) -> set[str]:
    """Every file that a manifest names in this stream's folder; other pipelines may write there too."""
    named: set[str] = set()
    for pipeline in os.listdir(chain.path("_penstock")):
        theirs = Chain(chain.root, Layout(unquote(pipeline), chain.layout.stream), chain.probe)
        named |= {file.name for number in theirs.numbers() for file in theirs.read(number).files}
    return named


def _withdraw(chain: Chain, number: int, reason: str) -> str:
    place = chain.path(os.path.join(chain.layout.withdrawn, f"{number}.{uuid.uuid4().hex[:8]}"))
    make_folder(place)
    path = chain.manifest_path(number)
    try:
        manifest = chain.read(number)
    except StreamStopped:
        manifest = None
    # Files first: after an interruption the slice is still incomplete, and is withdrawn again.
    for file in manifest.files if manifest else ():
        for name in (file.name, file.staged):
            if os.path.exists(chain.path(name)):
                os.replace(chain.path(name), os.path.join(place, os.path.basename(file.name)))
    if manifest and manifest.link:
        current = chain.path(chain.layout.current)
        if os.path.islink(current) and os.readlink(current) == manifest.link[1]:
            os.unlink(current)
    chain.probe.at("files.files_withdrawn", number=number)
    os.replace(path, os.path.join(place, os.path.basename(path)))
    sync(os.path.dirname(path))
    return f"slice {number} was withdrawn to {place} ({reason})"
