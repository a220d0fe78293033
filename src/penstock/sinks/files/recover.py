"""Repair a damaged folder at the operator's command: withdraw slices that are not complete, last first.

Nothing is deleted: files and manifests move to `withdrawn/`, and the next run delivers the slices again.
"""

from __future__ import annotations

import os
import uuid
from urllib.parse import unquote

from penstock.errors import StreamStopped
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.layout import Layout, file_number


def withdraw_broken(chain: Chain) -> list[str]:
    """Withdraw manifests from the end until the rest is an unbroken chain with all files; list what was withdrawn."""
    withdrawn: list[str] = []
    newest = None
    while numbers := chain.numbers():
        try:
            newest = chain.last(whole=True)
            chain.check_links([chain.read(number) for number in numbers])
            break
        except StreamStopped as reason:
            newest = None
            # What newest.json names must exist.
            chain.forget()
            withdrawn.append(_withdraw(chain, numbers[-1], reason.what))
    if newest:
        chain.remember(newest)
    else:
        chain.forget()
    return withdrawn + _withdraw_strays(chain, above=numbers[-1] if numbers else 0)


def _withdraw_strays(chain: Chain, above: int) -> list[str]:
    """Withdraw files of withdrawn slices whose manifest was missing or damaged.

    Otherwise readers would see their rows twice once the slices are delivered again.
    """
    found = [n for n in chain.folder.walk(chain.layout.data) if (file_number(os.path.basename(n)) or 0) > above]
    # Read afterwards: a visible file had its manifest before.
    named = _list_named(chain) if found else set()
    strays = [name for name in found if name not in named]
    if not strays:
        return []
    place = f"{chain.layout.withdrawn}/strays.{uuid.uuid4().hex[:8]}"
    for name in strays:
        chain.folder.move(name, f"{place}/{os.path.basename(name)}")
    return [f"files that no slice names were withdrawn to {chain.path(place)}: {len(strays)}"]


def _list_named(chain: Chain) -> set[str]:
    """Every file that a manifest names in this stream's folder; other pipelines may write there too."""
    named: set[str] = set()
    for pipeline in chain.folder.names("_penstock"):
        if chain.folder.has(f"_penstock/{pipeline}"):
            theirs = Chain(chain.folder, Layout(unquote(pipeline), chain.layout.stream), chain.probe)
            named |= {file.name for number in theirs.numbers() for file in theirs.read(number).files}
    return named


def _withdraw(chain: Chain, number: int, reason: str) -> str:
    place = f"{chain.layout.withdrawn}/{number}.{uuid.uuid4().hex[:8]}"
    name = chain.manifest_name(number)
    try:
        manifest = chain.read(number)
    except StreamStopped:
        manifest = None
    # Files first: after an interruption the slice is still incomplete, and is withdrawn again.
    for file in manifest.files if manifest else ():
        chain.folder.withdraw(file, f"{place}/{os.path.basename(file.name)}")
    if manifest:
        chain.folder.unpoint(chain.layout, manifest)
    chain.probe.at("files.files_withdrawn", number=number)
    chain.folder.move(name, f"{place}/{os.path.basename(name)}")
    return f"slice {number} was withdrawn to {chain.path(place)} ({reason})"
